"""Under torch.compile: no guards on the code of nearkin.

Before each call of a compiled function torch checks whether everything that it has traced is still what it was. For an objective these are
some three hundred functions, classes and constants of nearkin and functions of torch, which no program replaces while it runs, and the
checks take a sixth of the time of a small batch. torch leaves them out for the standard library, and here they are left out for nearkin.
Guards on settings, arguments, tensors and the caller's own code stay.
"""

from typing import Any

import torch

CODE = frozenset(["BUILTIN_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "DUPLICATE_INPUT", "FUNCTION_MATCH", "ID_MATCH", "MODULE_MATCH"])
OURS = "__import_nearkin", "___unnamed_scope"  # as torch names modules that it has traced into; the second are named tuples
TORCH = "__import_torch", "__import_contextlib", "__builtins_dict"


def trust_code() -> None:
    """Remove the guards on code that torch.compile has put on what it is tracing; called by `forward` at its end."""
    from torch._dynamo.comptime import comptime  # here, for it takes a second to import

    comptime(_remove)


def _remove(context: Any) -> None:
    try:
        output = context._i_will_not_complain_if_bc_breaks_InstructionTranslator().output
        scope = {"L": output.local_scope, "G": output.global_scope}
        where = output.tracing_context.guards_context
        known = where.dynamo_guards
        where.dynamo_guards = type(known)(type(known.inner)(one for one in known if not _of_code(one, scope)))
    except AttributeError:  # another torch: its guards stay, which takes longer
        return


def _of_code(guard: Any, scope: dict[str, Any]) -> bool:
    """Whether a guard is on code or constants of nearkin, or on a function of torch."""
    source, kind = guard.originating_source, guard.create_fn_name()
    name = _name(source)
    while hasattr(source, "base"):
        if type(source).__name__ == "TypeSource" and _is_ours(_name(source), scope):
            return True  # what a class of nearkin has; some of these guards copy all of its attributes
        source = source.base
    own = str(scope["G"].get("__name__")).startswith("nearkin.")  # whether the outermost function is one of nearkin
    root = getattr(source, "global_name", None)
    if root is None or kind == "TENSOR_MATCH" or "_collections" in name:  # what is collected changes
        return False
    if root == torch.__name__ or root.startswith(TORCH):
        return kind in CODE
    return root.startswith(OURS) or (own and not root.startswith("__"))


def _name(source: Any) -> str:
    found: str = source.name if isinstance(source.name, str) else source.name()  # a method before torch 2.10
    return found


def _is_ours(name: str, scope: dict[str, Any]) -> bool:
    """Whether an expression such as `type(L['self'])` is a class of nearkin."""
    try:
        return str(eval(name, {}, scope).__module__).startswith("nearkin.")
    except Exception:  # an expression that needs more than the scope
        return False
