"""Built-in tasks; `adaxlab.task.BUILT_IN` names them."""
