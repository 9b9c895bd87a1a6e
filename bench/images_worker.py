"""tf.data or Pillow, for bench/images.

    images_worker.py tensorflow|pillow --pictures DIR --records DIR --size N

Says what it is in a line, then answers each line, the name of a job, with the seconds that it took. The jobs are
those of bench/images.cc: "full" and "scaled" read, decode and resize every picture once, at full size first or at
the size next above that the decoder itself can make; "large" and "small" read every record of a file.
"""

import argparse
import os
import pathlib
import sys
import time


def tensorflow_jobs(flags, files):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def on_one_thread(dataset):
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        options.threading.max_intra_op_parallelism = 1
        options.autotune.enabled = False
        return dataset.with_options(options)

    def count(dataset, size_of):
        """A function that walks over all elements inside of TensorFlow: Python would cost more than the reading."""
        dataset = on_one_thread(dataset)

        @tf.function
        def walk():
            return dataset.reduce(tf.constant(0, tf.int64), lambda sum, element: sum + size_of(element))

        return lambda: int(walk())

    def pictures(ratio):
        def read(file):
            picture = tf.io.decode_jpeg(tf.io.read_file(file), channels=3, ratio=ratio)
            return tf.image.resize(picture, (flags.size, flags.size))

        return tf.data.Dataset.from_tensor_slices(files).map(read)

    def records(kind):
        return tf.data.TFRecordDataset(f"{flags.records}/{kind}.tfrecord")

    def length(record):
        return tf.cast(tf.strings.length(record), tf.int64)

    # One ratio for all: the largest that leaves every picture large enough.
    smallest = min(min(tf.io.decode_jpeg(tf.io.read_file(file)).shape[:2]) for file in files)
    ratio = max(r for r in (1, 2, 4, 8) if r == 1 or -(-smallest // r) >= flags.size)
    return f"TensorFlow {tf.__version__}", {
        "full": count(pictures(1), lambda picture: tf.size(picture, tf.int64)),
        "scaled": count(pictures(ratio), lambda picture: tf.size(picture, tf.int64)),
        "large": count(records("large"), length),
        "small": count(records("small"), length),
    }


def pillow_jobs(flags, files):
    import PIL
    from PIL import Image

    size = (flags.size, flags.size)

    def decode(scaled):
        for file in files:
            with Image.open(file) as picture:
                if scaled:
                    picture.draft("RGB", size)
                # To whole numbers, three bytes a pixel: nobody turns them into floats here.
                picture.convert("RGB").resize(size, Image.BILINEAR)

    return f"Pillow {PIL.__version__}", {"full": lambda: decode(False), "scaled": lambda: decode(True)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["tensorflow", "pillow"])
    parser.add_argument("--pictures", required=True)
    parser.add_argument("--records", required=True)
    parser.add_argument("--size", type=int, required=True)
    flags = parser.parse_args()
    # Libraries print to standard output as they please; the answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    files = sorted(str(file) for file in pathlib.Path(flags.pictures).rglob("*.jpg"))
    version, jobs = (tensorflow_jobs if flags.library == "tensorflow" else pillow_jobs)(flags, files)
    for job in jobs.values():
        job()
    print(version, file=answers)
    for line in sys.stdin:
        start = time.perf_counter()
        jobs[line.strip()]()
        print(time.perf_counter() - start, file=answers)


if __name__ == "__main__":
    main()
