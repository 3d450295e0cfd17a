"""What test_keras.py runs once per backend, in a process of its own: prints one json line of findings."""

import doctest
import json
import os
import sys
import warnings
from pathlib import Path

import keras
import numpy as np

import adaxopt.keras
from adaxopt.keras import AdaX, AdaXW, Padax

CLASSES = {"AdaX": AdaX, "AdaXW": AdaXW, "Padax": Padax}


def parity(name, options, dtype, steps, inactive):
    """Parameters after feeding the gradients that test_keras.py feeds to torch."""
    rng = np.random.default_rng(7)
    start, noise = rng.standard_normal((3, 2)), rng.standard_normal((steps, 3, 2))
    x = keras.Variable(start, dtype=dtype)
    optimizer = CLASSES[name](**options)
    optimizer.build([x])
    for t, g in enumerate(noise):
        g = g + np.array(keras.ops.convert_to_numpy(x))
        g[0, 0] *= t >= inactive
        optimizer.apply([keras.ops.convert_to_tensor(g, dtype=dtype)])
    assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == steps
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float64")).tolist()


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 8)).astype("float32")
    return x, (x[:, :1] * 2 - x[:, 1:2] + 0.5).astype("float32")


def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])


def fit(net, epochs, **settings):
    x, y = data()
    return net.fit(x, y, batch_size=64, epochs=epochs, shuffle=False, verbose=0, **settings).history["loss"]


def training(folder, jit):
    """Loss falls; a model saved in the middle and loaded goes on to the same numbers."""
    straight = model()
    straight.compile(AdaXW(1e-2, weight_decay=1e-3), loss="mse", jit_compile=jit)
    whole = fit(straight, 8)
    broken = model()
    broken.compile(AdaXW(1e-2, weight_decay=1e-3), loss="mse", jit_compile=jit)
    first = fit(broken, 4)
    path = str(Path(folder) / f"model_{jit}.keras")
    broken.save(path)
    again = keras.saving.load_model(path)
    assert type(again.optimizer) is AdaXW
    return {"straight": whole, "resumed": first + fit(again, 4)}


def features(folder):
    found = {}
    net = model()
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, 32)
    optimizer = AdaXW(
        schedule, decay="fully_decoupled", weight_decay=1e-3, clip_update=1.0, global_clipnorm=1.0
    )
    net.compile(optimizer, loss="mse")
    found["schedule"] = fit(net, 4)
    copy = AdaXW.from_config(optimizer.get_config())
    found["config"] = json.dumps(copy.get_config(), sort_keys=True) == json.dumps(
        optimizer.get_config(), sort_keys=True
    )
    found["reference_lr"] = copy.reference_lr
    path = str(Path(folder) / "schedule.keras")
    net.save(path)
    found["loaded_class"] = type(keras.saving.load_model(path).optimizer).__name__

    net = model()
    net.compile(AdaXW(1e-2, gradient_accumulation_steps=2, use_ema=True), loss="mse")
    found["accumulated"] = fit(net, 4)

    keras.config.set_dtype_policy("mixed_bfloat16")
    net = model()
    net.compile(AdaXW(1e-2), loss="mse")
    found["mixed"] = fit(net, 4)
    keras.config.set_dtype_policy("bfloat16")
    net = model()
    net.compile(AdaXW(1e-2), loss="mse")
    found["bfloat16"] = [float(x) for x in fit(net, 4)]
    found["state_of_bfloat16"] = sorted({v.dtype for v in net.optimizer._velocities})
    keras.config.set_dtype_policy("float32")

    words = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(10, 4), keras.layers.Flatten()]
    )
    words.compile(AdaXW(1e-2), loss="mse")
    ids = np.array([[1, 2, 3], [3, 4, 1]] * 8, "int32")
    found["embedding"] = words.fit(ids, np.ones((16, 12), "float32"), epochs=3, verbose=0).history["loss"]

    a, b = (keras.Variable(np.full(2, 2.0), name=name) for name in ("kernel", "bias"))
    for cls in CLASSES.values():
        optimizer = cls(1e-2, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        optimizer.build([a, b])
        for g in (
            1.0,
            0.1,
        ):  # AdaX's first step is a sign: decay inside the gradient shows from the second on
            optimizer.apply([keras.ops.convert_to_tensor(np.full(2, g, "float32")) for _ in range(2)])
        found[f"excluded_{cls.__name__}"] = bool(
            np.all(keras.ops.convert_to_numpy(a) != keras.ops.convert_to_numpy(b))
        )
    return found


def accumulation():
    """Parameters after four gradients accumulated in pairs, and after the means of the pairs."""
    found = []
    for count, gradients in ((2, [[1, 2], [3, -1], [1, 1], [2, 2]]), (None, [[2, 0.5], [1.5, 1.5]])):
        x = keras.Variable(np.array([1.0, 2.0], "float32"))
        optimizer = AdaXW(0.125, weight_decay=0.25, total_steps=4, gradient_accumulation_steps=count)
        optimizer.build([x])
        for g in gradients:
            optimizer.apply([keras.ops.convert_to_tensor(np.array(g, "float32"))])
        found.append(keras.ops.convert_to_numpy(x).tolist())
    return found


def numpy_numbers():
    """Training with hyper-parameters that are numbers of NumPy, and their config beside that of Python's."""
    options = {
        "beta_1": 0.5,
        "epsilon": 2.0**-20,
        "weight_decay": 0.25,
        "clip_update": 2.0,
        "reference_lr": 0.125,
        "decay": "fully_decoupled",
    }
    given = {k: np.float32(v) if isinstance(v, float) else v for k, v in options.items()}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer = AdaXW(
            np.float32(2.0**-7), wake=np.bool_(True), total_steps=np.array(64), name="one", **given
        )
        said = [str(w.message) for w in seen if "b2" in str(w.message)]
    plain = AdaXW(2.0**-7, wake=True, total_steps=64, name="one", **options)
    net = model()
    net.compile(optimizer, loss="mse")
    return {
        "warnings": said,
        "config": json.dumps(optimizer.get_config(), sort_keys=True),
        "plain": json.dumps(plain.get_config(), sort_keys=True),
        "loss": fit(net, 4),
    }


def decay_set_later():
    """Decay given at construction, and set after it: the same step; without a reference it says what to give."""
    found = {}
    for name, rate in {
        "number": 0.25,
        "schedule": keras.optimizers.schedules.ExponentialDecay(0.25, 1, 0.5),
    }.items():
        for decay in ("fully_decoupled", "decoupled", "l2"):
            steps = []
            for given in (0.5, None, 0.0):
                x = keras.Variable(np.array([2.0, -1.0], "float32"))
                optimizer = AdaXW(rate, weight_decay=given, decay=decay)
                optimizer.build([x])
                for t in range(3):
                    optimizer.weight_decay = 0.5 if t else None
                    optimizer.apply([keras.ops.convert_to_tensor(np.array([1.0, 3.0], "float32") * (t + 1))])
                again = type(optimizer).from_config(optimizer.get_config())
                assert again.reference_lr == optimizer.reference_lr
                steps.append(keras.ops.convert_to_numpy(x).tolist())
            found[f"{name} {decay}"] = steps
    x = keras.Variable(np.ones(2, "float32"))
    for name, rate in {"zero": 0.0, "callable": lambda: 0.1}.items():
        optimizer = AdaXW(rate, weight_decay=None, decay="fully_decoupled")
        optimizer.build([x])
        gradient = keras.ops.convert_to_tensor(np.ones(2, "float32"))
        optimizer.apply([gradient])
        optimizer.weight_decay = 0.1
        try:
            optimizer.apply([gradient])
            found[name] = ""
        except ValueError as e:
            found[name] = str(e)
        optimizer.reference_lr = 0.1
        optimizer.apply([gradient])
    return found


def narrow_floatx(floatx):
    """The learning rate, of a number and of schedules, where Keras's default dtype has 16 bits."""
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        schedules = keras.optimizers.schedules
        found = {}
        for name, rate in {
            "number": 1e-8,
            "exponential": schedules.ExponentialDecay(1e-8, 1000, 0.5),
            "cosine": schedules.CosineDecay(1e-3, 100_000, alpha=0.1),
            "callable": lambda: 1e-8,
        }.items():
            x = keras.Variable(np.zeros(1), dtype="float32")
            optimizer = AdaXW(rate, weight_decay=None)
            optimizer.build([x])
            optimizer._iterations.assign(70_000)  # float16 ends at 65,504
            optimizer._velocities[0].assign(np.ones(1, "float32"))
            optimizer._momentums[0].assign(np.ones(1, "float32"))
            optimizer.apply([keras.ops.convert_to_tensor(np.ones(1, "float32"))])
            found[name] = float(keras.ops.convert_to_numpy(x)[0])
        optimizer = AdaXW(0.5)
        optimizer.learning_rate = 1e-8
        found["set"] = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        found["dtype"] = keras.backend.standardize_dtype(optimizer.learning_rate.dtype)
        found["reference"] = AdaXW(1e-8, decay="fully_decoupled").reference_lr
        found["after"] = keras.config.floatx()
        return found
    finally:
        keras.config.set_floatx(before)


def late(t):
    """One float32 step at step t with an inactive coordinate."""
    x = keras.Variable(np.zeros(2, "float32"))
    optimizer = AdaXW(1.0, weight_decay=None)
    optimizer.build([x])
    optimizer._iterations.assign(t - 1)
    optimizer._velocities[0].assign(np.array([0.0, 1.0], "float32"))
    optimizer.apply([keras.ops.convert_to_tensor(np.array([1e-3, 1.0], "float32"))])
    return keras.ops.convert_to_numpy(x).astype("float64").tolist()


def spike(t, g, dtype):
    """Four steps from step t on, the second with a gradient whose square overflows: what is left of 0."""
    x = keras.Variable(np.zeros(2, dtype))
    optimizer = AdaXW(1.0, weight_decay=None)
    optimizer.build([x])
    optimizer._iterations.assign(t - 1)
    for one in (1.0, g, 1.0, g):
        optimizer.apply([keras.ops.convert_to_tensor(np.array([one, 1.0], dtype))])
    return keras.ops.convert_to_numpy(x).astype("float64").tolist()


def main():
    warnings.filterwarnings("ignore")
    request = json.loads(sys.argv[1])
    result = {"backend": keras.backend.backend(), "torch": "torch" in sys.modules}
    if request["backend"] == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    sizes = request["steps"], request["inactive"]
    result["parity"] = [parity(*row, "float64", *sizes) for row in request["parity"]]
    if request["backend"] == "jax":
        jax.config.update("jax_enable_x64", False)
    result["examples"] = doctest.testmod(adaxopt.keras)
    result["accumulation"] = accumulation()
    result["numpy"] = numpy_numbers()
    result["decay_set_later"] = decay_set_later()
    result["narrow_floatx"] = {name: narrow_floatx(name) for name in ("float16", "bfloat16", "float32")}
    result["spikes"] = [spike(*row) for row in request["spikes"]]
    result["late"] = [late(t) for t in request["late"]]
    result["training"] = {str(jit): training(request["folder"], jit) for jit in request["jit"]}
    result["features"] = features(request["folder"])
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    assert os.environ["KERAS_BACKEND"]
    main()
