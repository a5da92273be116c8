"""The private names of other libraries that this room uses: where, and the test of what they do.

`tests/fast/test_door.py` looks each of them up, so that a version without one is noticed by name.
Methods and attributes of agents that begin with an underscore are those that a subclass of an
algorithm overrides; Stable-Baselines3's version is fixed by `rlzoo_plus.fast.TESTED`.
"""

_TAPE = "tests/fast/test_tape.py"
_CHANGES = "tests/fast/test_mutations.py"
# Module and name, the file that uses it, and the test that notices another behaviour.
PRIVATE_NAMES = (
    ("torch.utils._python_dispatch:TorchDispatchMode", "recorded/recording.py", _TAPE),
    ("torch:Tensor._use_count", "recorded/recording.py", _TAPE),
    ("torch:ops.aten.mul.Tensor._schema", "recorded/recording.py", _TAPE),
    ("torch:distributions.Distribution._validate_args", "recorded/recording.py", _TAPE),
    ("torch:_C.Graph", "recorded/scope.py", _TAPE),
    ("torch:_C._jit_pass_dce", "recorded/scope.py", _TAPE),
    ("torch:_C._create_function_from_graph", "recorded/graphs.py", _TAPE),
    ("torch:_C._get_graph_executor_optimize", "recorded/graphs.py", _TAPE),
    ("torch:_C._set_graph_executor_optimize", "recorded/graphs.py", _TAPE),
    ("torch:_C._AutoDispatchBelowAutograd", "recorded/graphs.py", _TAPE),
    ("torch:_C._len_torch_function_stack", "recorded/change_detector.py", _CHANGES),
    ("torch:_C._len_torch_dispatch_stack", "recorded/change_detector.py", _CHANGES),
    ("torch.nn.modules.module:_global_forward_hooks", "recorded/change_detector.py", _CHANGES),
    ("torch.optim.optimizer:_global_optimizer_pre_hooks", "recorded/change_detector.py", _CHANGES),
    ("torch:Tensor._backward_hooks", "recorded/change_detector.py", _CHANGES),
    ("torch:Tensor._post_accumulate_grad_hooks", "recorded/change_detector.py", _CHANGES),
    ("gc:get_referents", "recorded/change_detector.py", _CHANGES),
    ("torch:_fused_adam_", "handwritten/adam_steps.py", "tests/fast/test_optimizer_steps.py"),
    ("torch:_fused_adamw_", "handwritten/adam_steps.py", "tests/fast/test_optimizer_steps.py"),
    (
        "torch:ops.mkldnn._linear_pointwise.default._schema",
        "recorded/onednn.py",
        "tests/fast/test_onednn_products.py",
    ),
    ("torch:_dynamo", "startup.py", "tests/fast/test_startup.py"),
)
