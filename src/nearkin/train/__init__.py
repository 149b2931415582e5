"""Training. `nearkin.train.fit` is the loop on one page, for images in memory.

Nothing is imported here: a function `fit` in this namespace would hide the module of that name.
"""
