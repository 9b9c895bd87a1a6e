"""TensorFlow's MirroredStrategy on two logical CPU devices, or one task of several, for bench/compare.

    compare_tensorflow.py [--worker | --parameter_server]     (TF_CONFIG says which of the tasks it is)

Trains the network of src/models/resnet.cc in Keras's functional API with the optimizer and the kind of batch
of bench/step_speed.cc. Protocol: see compare_worker.py.

Threads: both logical devices share one pool of inter-op and one of intra-op threads. Two inter-op threads let
the replicas run side by side; one intra-op thread keeps them out of each other's way, as the others' one thread
per replica does. With two intra-op threads it was slower on two quiet cores. A worker has one of each.

With parameter servers only the coordinator answers; a worker and a ps run a server, with one intra-op thread and one
inter-op thread more than there are workers: with fewer they wait for each other for ever.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # it greets on standard error
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf
from tensorflow import keras

import compare_worker as worker

REPLICAS = 2
INTRA_OP_THREADS = 1


def conv(x, filters, kernel, stride):
    # Padded as PyTorch pads: by kernel // 2 on each side, where "same" may pad one side alone.
    if stride > 1 and kernel > 1:
        x = keras.layers.ZeroPadding2D(kernel // 2)(x)
        padding = "valid"
    else:
        padding = "same"
    return keras.layers.Conv2D(
        filters, kernel, stride, padding=padding, use_bias=False, kernel_initializer="he_normal"
    )(x)


def batch_norm(x):
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def basic_block(x, filters, stride):
    h = keras.layers.ReLU()(batch_norm(conv(x, filters, 3, stride)))
    h = batch_norm(conv(h, filters, 3, 1))
    if stride != 1 or x.shape[-1] != filters:
        x = batch_norm(conv(x, filters, 1, stride))
    return keras.layers.ReLU()(keras.layers.Add()([h, x]))


def resnet_cifar(size=20, classes=10):
    image = keras.Input((32, 32, 3))
    h = keras.layers.ReLU()(batch_norm(conv(image, 16, 3, 1)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range((size - 2) // 6):
            h = basic_block(h, filters, stride if i == 0 else 1)
    h = keras.layers.GlobalAveragePooling2D()(h)
    network = keras.Model(image, keras.layers.Dense(classes)(h))
    worker.check_parameters(sum(int(tf.size(v)) for v in network.trainable_variables))
    return network


class Trainer:
    def __init__(self, strategy, rows):
        self.strategy = strategy
        with strategy.scope():
            self.network = resnet_cifar()
            # Decoupled from the gradient in Keras, but as much work.
            self.optimizer = keras.optimizers.SGD(
                worker.LEARNING_RATE, worker.MOMENTUM, weight_decay=worker.WEIGHT_DECAY
            )
            self.optimizer.exclude_from_weight_decay(var_names=["gamma", "beta", "bias"])
            self.optimizer.build(self.network.trainable_variables)
        self.x = self.per_replica(lambda: tf.random.normal((rows, 32, 32, 3)))
        self.y = self.per_replica(lambda: tf.random.uniform((rows,), maxval=10, dtype=tf.int64))
        self.step = tf.function(self.traced_step)

    def per_replica(self, make):
        return self.strategy.experimental_distribute_values_from_function(lambda context: make())

    def replica_step(self, x, y):
        with tf.GradientTape() as tape:
            logits = self.network(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.nn.compute_average_loss(losses)
        variables = self.network.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    def traced_step(self, x, y):
        per_replica = self.strategy.run(self.replica_step, args=(x, y))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    def run(self, steps):
        for _ in range(steps):
            self.step(self.x, self.y).numpy()


class CoordinatedTrainer(Trainer):
    """Steps on whichever worker is free; each has a batch of its own."""

    def __init__(self, strategy, coordinator, rows):
        super().__init__(strategy, rows)
        self.coordinator = coordinator
        batch = lambda: (tf.random.normal((rows, 32, 32, 3)), tf.random.uniform((rows,), maxval=10, dtype=tf.int64))
        self.batches = iter(
            coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(batch()).repeat())
        )
        self.step = tf.function(lambda batches: strategy.run(self.replica_step, args=next(batches)))

    def run(self, steps):
        for _ in range(REPLICAS * steps):
            self.coordinator.schedule(self.step, args=(self.batches,))
        self.coordinator.join()


def parameter_server_task():
    """Serves, on a worker or a ps; returns on the coordinator alone, with what makes a trainer."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        threads = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=INTRA_OP_THREADS, inter_op_parallelism_threads=REPLICAS + 1
        )
        tf.distribute.Server(
            resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc", config=threads
        )
        worker.wait_for_the_end()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return lambda rows: CoordinatedTrainer(strategy, coordinator, rows)


def worker_strategy():
    tf.config.threading.set_intra_op_parallelism_threads(INTRA_OP_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(INTRA_OP_THREADS)
    return tf.distribute.MultiWorkerMirroredStrategy()


def mirrored_strategy():
    tf.config.threading.set_intra_op_parallelism_threads(INTRA_OP_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(REPLICAS)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * REPLICAS
    )
    return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(REPLICAS)])


def main():
    if sys.argv[1:] == ["--parameter_server"]:
        make_trainer = parameter_server_task()
    else:
        strategy = worker_strategy() if sys.argv[1:] == ["--worker"] else mirrored_strategy()
        make_trainer = lambda rows: Trainer(strategy, rows)
    trainers = {rows: make_trainer(rows) for rows in worker.SIZES}
    worker.serve(f"TensorFlow {tf.__version__}", {rows: t.run for rows, t in trainers.items()})


if __name__ == "__main__":
    main()
