"""The tables of the five papers: run again, compared with the printed figures, written as one page per paper."""
