"""Built-in tasks; `adaxopt.lab.task.BUILT_IN` names them."""
