"""Train: from a run and its data to a model folder; resumable, exact on several ranks. `fit` is the loop on one page.

Nothing is imported here: a function `fit` in this namespace would hide the module of that name.
"""
