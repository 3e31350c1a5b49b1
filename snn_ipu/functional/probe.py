"""Monitors that record what goes through chosen layers of a network, by forward and backward hooks."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Optional, Tuple, Type, Union

from torch import nn
from torch.utils.hooks import RemovableHandle

Layers = Optional[Union[Type[nn.Module], Tuple[Type[nn.Module], ...]]]
Function = Callable[[Any], Any]
Record = Callable[[str, nn.Module, Any], None]


def unpack_len1_tuple(x: Any) -> Any:
    """The only element of a tuple of one, else `x` itself."""
    return x[0] if isinstance(x, tuple) and len(x) == 1 else x


def _unchanged(x: Any) -> Any:
    return x


class BaseMonitor:
    """Base of the monitors: `monitor[i]` is the i-th record, `monitor["name"]` all records of one layer.

    `records` lists all records in order, `monitored_layers` the module paths watched. The hooks are removed
    by `remove_hooks()` and when the monitor is deleted.
    """

    def __init__(self) -> None:
        self.hooks: list[RemovableHandle] = []
        self.monitored_layers: list[str] = []
        self.records: list[Any] = []
        self.name_records_index: dict[str, list[int]] = {}
        self._enable = True
        # the hooks live in the network, so they must not keep the monitor alive
        weakref.finalize(self, _remove, self.hooks)

    def __getitem__(self, i: int | str) -> Any:
        if isinstance(i, int):
            return self.records[i]
        if i not in self.name_records_index:
            raise KeyError(f"monitor[{i!r}]: no such layer; monitored layers are {self.monitored_layers}.")
        return [self.records[index] for index in self.name_records_index[i]]

    def clear_recorded_data(self) -> None:
        """Forgets all records."""
        self.records.clear()
        for indices in self.name_records_index.values():
            indices.clear()

    def enable(self) -> None:
        """Records from now on."""
        self._enable = True

    def disable(self) -> None:
        """Records nothing until enabled."""
        self._enable = False

    def is_enable(self) -> bool:
        """Whether the monitor records."""
        return self._enable

    def remove_hooks(self) -> None:
        """Detaches the monitor from its network; the records stay."""
        _remove(self.hooks)

    def _watch(
        self,
        net: nn.Module,
        instance: Layers,
        register: Callable[[nn.Module], Callable[..., RemovableHandle]],
        value: Callable[..., Any],
    ) -> None:
        """Records value(module, *hook arguments) of every module of a class (default: that of `net`)."""
        if instance is None:
            instance = type(net)
        classes = instance if isinstance(instance, tuple) else (instance,)
        if not all(isinstance(cls, type) for cls in classes):
            raise TypeError(
                f"{type(self).__name__}(net, instance={instance!r}); expected a class or a tuple of classes,"
                " such as instance=snn.Leaky (not an object of it)."
            )
        this = weakref.ref(self)
        for name, module in net.named_modules():
            if isinstance(module, classes):
                self.monitored_layers.append(name)
                self.name_records_index[name] = []
                self.hooks.append(register(module)(_hook(this, name, value)))


def _hook(this: weakref.ref[BaseMonitor], name: str, value: Callable[..., Any]) -> Callable[..., None]:
    def hook(module: nn.Module, *arguments: Any) -> None:
        monitor = this()
        if monitor is not None and monitor.is_enable():
            monitor.name_records_index[name].append(len(monitor.records))
            monitor.records.append(value(module, *arguments))

    return hook


def _remove(hooks: list[RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()


class OutputMonitor(BaseMonitor):
    """Records the outputs of layers.

    Args:
        net: network.
        instance: class, or tuple of classes, of the layers to watch; the class of `net` if None.
        function_on_output: applied to each output before it is recorded.

    Source: snnTorch, after SpikingJelly.
    """

    def __init__(self, net: nn.Module, instance: Layers = None, function_on_output: Function = _unchanged) -> None:
        super().__init__()
        self.function_on_output = function_on_output
        self._watch(
            net,
            instance,
            lambda module: module.register_forward_hook,
            lambda module, x, y: function_on_output(unpack_len1_tuple(y)),
        )


class InputMonitor(BaseMonitor):
    """Records the inputs of layers.

    Args:
        net: network.
        instance: class, or tuple of classes, of the layers to watch; the class of `net` if None.
        function_on_input: applied to each input before it is recorded.

    Source: snnTorch, after SpikingJelly.
    """

    def __init__(self, net: nn.Module, instance: Layers = None, function_on_input: Function = _unchanged) -> None:
        super().__init__()
        self.function_on_input = function_on_input
        self._watch(
            net,
            instance,
            lambda module: module.register_forward_hook,
            lambda module, x, y: function_on_input(unpack_len1_tuple(x)),
        )


class AttributeMonitor(BaseMonitor):
    """Records an attribute of layers, such as the membrane, at every call.

    Args:
        attribute_name: attribute to record, such as "mem" or "syn".
        pre_forward: record before the forward pass, else after it.
        net: network.
        instance: class, or tuple of classes, of the layers to watch; the class of `net` if None.
        function_on_attribute: applied to each value before it is recorded.

    Source: snnTorch, after SpikingJelly.
    """

    def __init__(
        self,
        attribute_name: str,
        pre_forward: bool,
        net: nn.Module,
        instance: Layers = None,
        function_on_attribute: Function = _unchanged,
    ) -> None:
        super().__init__()
        self.attribute_name = attribute_name
        self.function_on_attribute = function_on_attribute
        self._watch(
            net,
            instance,
            lambda module: module.register_forward_pre_hook if pre_forward else module.register_forward_hook,
            lambda module, *arguments: function_on_attribute(getattr(module, attribute_name)),
        )


class GradInputMonitor(BaseMonitor):
    """Records the gradients of layers' inputs.

    Args:
        net: network.
        instance: class, or tuple of classes, of the layers to watch; the class of `net` if None.
        function_on_grad_input: applied to each gradient before it is recorded.

    Source: snnTorch, after SpikingJelly.
    """

    def __init__(self, net: nn.Module, instance: Layers = None, function_on_grad_input: Function = _unchanged) -> None:
        super().__init__()
        self.function_on_grad_input = function_on_grad_input
        self._watch(
            net,
            instance,
            lambda module: module.register_full_backward_hook,
            lambda module, grad_input, grad_output: function_on_grad_input(unpack_len1_tuple(grad_input)),
        )


class GradOutputMonitor(BaseMonitor):
    """Records the gradients of layers' outputs.

    Args:
        net: network.
        instance: class, or tuple of classes, of the layers to watch; the class of `net` if None.
        function_on_grad_output: applied to each gradient before it is recorded.

    Source: snnTorch, after SpikingJelly.
    """

    def __init__(self, net: nn.Module, instance: Layers = None, function_on_grad_output: Function = _unchanged) -> None:
        super().__init__()
        self.function_on_grad_output = function_on_grad_output
        self._watch(
            net,
            instance,
            lambda module: module.register_full_backward_hook,
            lambda module, grad_input, grad_output: function_on_grad_output(unpack_len1_tuple(grad_output)),
        )
