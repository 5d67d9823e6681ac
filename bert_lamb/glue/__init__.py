"""Classification and regression of one or two texts: GLUE's tasks and tables like theirs.

Everything here is plain NumPy, without JAX.

Modules:
    tasks: what each task's columns, labels and metrics are; tasks of one's own.
    dataset, reading: tables read strictly, and what was found in them.
    features: fixed rows of one or two texts.
    metrics: the published scores.
    writing: predictions as GLUE takes them, and read back.
"""
