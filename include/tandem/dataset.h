#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/batch.h"
#include "tandem/example_random.h"

namespace tandem {

namespace internal {
class DatasetView;
class ElementIterator;
}  // namespace internal

// How the input is shared among several workers; docs/input.md has the tables.
enum class AutoShardPolicy {
  kAuto,  // kFile if from_files() feeds the pipeline and there is a file for each worker, else kData
  kFile,  // worker w of W reads the files w, w + W, ...
  kData,  // each worker reads all the data, and takes its rows of each global batch
  kOff,   // each worker sees all the data
  kHint,  // the dataset says where, by shard_hint()
};

struct FilesOptions {
  // Another order of the files each epoch, a function of (seed, epoch) alone. Workers that share the files
  // agree on it: each reads its own in the order that all of them have together.
  bool shuffle = false;
  // Unset: the seed of whoever iterates.
  std::optional<std::uint64_t> seed = {};
  // How many elements a file has, where that is quick to tell (from its size, say), or Dataset::kUnknown.
  // Lets a seek pass over files without opening them. Each file is asked for once. next() throws
  // FailedPrecondition if a file has fewer elements, or more.
  std::function<std::int64_t(const std::string& file)> count = {};
};

struct MapOptions {
  // Threads that call the function. The order of the elements is kept. 0: the thread that asks for the next.
  int parallelism = 0;
};

struct ShuffleOptions {
  // Unset: the seed of whoever iterates (the model's in fit).
  std::optional<std::uint64_t> seed = {};
  // Another order each epoch. The order is a function of (seed, epoch) alone.
  bool reshuffle_each_iteration = true;
};

struct BatchOptions {
  // Leave out a last batch that is not full.
  bool drop_remainder = false;
};

struct IterateOptions {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

// Where an iteration stands: the elements it has handed out in its epoch. Elements that were prefetched but
// not handed out do not count.
struct DatasetPosition {
  std::int64_t epoch = 0;
  std::int64_t element = 0;

  friend bool operator==(const DatasetPosition&, const DatasetPosition&) = default;
};

// One pass over a dataset. Not thread-safe. Ends its threads when destroyed.
class DatasetIterator {
 public:
  DatasetIterator(DatasetIterator&&) noexcept;
  DatasetIterator& operator=(DatasetIterator&&) noexcept;
  ~DatasetIterator();

  // The next element, or nothing at the end. Rethrows what a map function or a reader threw, once: the
  // iteration and its threads have then ended, and seek(position()) tries the same element again.
  std::optional<Batch> next();

  DatasetPosition position() const;

  // For the rooms above: the rows of the global batch that the last element is a worker's part of; 0 if it is
  // whole.
  std::int64_t whole_rows() const { return whole_rows_; }

  // Goes to a position that an iterator of the same dataset and seed told, forwards or backwards. Makes none
  // of the elements before it, save those that shuffle() reads from a map, that cache() does not have yet, or
  // that a generator gives; a shuffle of many takes a moment, and files of unknown length are opened. Throws
  // OutOfRange if the epoch has fewer elements; the iterator then stays where it is.
  void seek(DatasetPosition position);

 private:
  friend class Dataset;
  DatasetIterator(std::shared_ptr<const internal::DatasetView> view, IterateOptions options);

  std::shared_ptr<const internal::DatasetView> view_;
  IterateOptions options_;
  std::unique_ptr<internal::ElementIterator> elements_;
  std::int64_t consumed_ = 0;
  std::int64_t whole_rows_ = 0;
};

// Examples, read in order: a chain of small views, as tf.data's. A Dataset is a value: a shared handle on
// something that never changes (cache() aside), so it can be iterated any number of times, also at once.
// Methods throw InvalidArgument for a count they cannot mean.
//
//   auto train = data::cifar10(dir, data::Split::kTrain)
//                    .shuffle(50000).map(data::augment_cifar).batch(128).prefetch(2);
class Dataset {
 public:
  static constexpr std::int64_t kInfinite = -1;
  static constexpr std::int64_t kUnknown = -2;

  // Example i is row i of each tensor (views; nothing is copied).
  // Throws InvalidArgument if the tensors have different numbers of rows.
  static Dataset from_tensors(Tensors x, Tensors y = {}, at::Tensor sample_weight = {});
  // TensorFlow's name for it.
  static Dataset from_tensor_slices(Tensors x, Tensors y = {}, at::Tensor sample_weight = {});

  // `count` examples, example(i) made when it is asked for, from any thread.
  static Dataset from_function(std::int64_t count, std::function<Batch(std::int64_t index)> example);

  // What a generator gives until it gives nothing. Each pass calls make() for a generator of its own, also to
  // seek: it then drops what comes before the position, so a generator must give the same again. One thread
  // at a time calls a generator, though not always the same one; several may call make() at once. What they
  // throw comes out of next(). Element i of a pass counts as example i for maps with random numbers.
  //
  // `cardinality`: how many elements each pass has, where it is known, or kInfinite. next() throws
  // FailedPrecondition if a generator gives fewer, or more.
  static Dataset from_generator(std::function<std::function<std::optional<Batch>()>()> make,
                                std::int64_t cardinality = kUnknown);

  // The elements of the first file, then of the second, ...: read(file) makes a Dataset of a file when its
  // turn comes, which goes before the next is made, so the whole is never in memory. It should give single
  // examples, and the same ones each time; batch() and repeat() come after. Called from any thread, and from
  // several at once where iterations run at once. What it throws comes out of next().
  //
  // Several workers share the files (AutoShardPolicy::kFile). Example i of file f, counted in the whole list
  // from 0, is example f * 2^32 + i for maps with random numbers, and maps inside read() draw from a stream
  // of that file, so an example is the same for any number of workers.
  //
  // cardinality() is the sum over the files, found out when it is first asked for and then kept. It asks
  // options.count; without, read(file), if all files together have at most 64 MiB: to open or load more just
  // to count would take too long, and the answer is kUnknown.
  //
  // Throws InvalidArgument for an empty list.
  static Dataset from_files(std::vector<std::string> files,
                            std::function<Dataset(const std::string& file)> read, FilesOptions options = {});

  // Each element through fn. With parallelism fn is called from several threads at once, each with one
  // intra-op thread. Several maps with random numbers draw different ones.
  Dataset map(std::function<Batch(Batch)> fn, MapOptions options = {}) const;
  Dataset map(std::function<Batch(Batch, ExampleRandom&)> fn, MapOptions options = {}) const;

  // The next element is drawn from a buffer of the next buffer_size ones. Directly after a source
  // (from_tensors, from_function, a reader) the buffer holds only numbers: shuffle first, then map.
  Dataset shuffle(std::int64_t buffer_size, ShuffleOptions options = {}) const;

  // Stacks n elements along a new first dimension; the last batch may be smaller. next() throws
  // InvalidArgument for elements of different shapes or types.
  Dataset batch(std::int64_t n, BatchOptions options = {}) const;

  // count times over, for ever if kInfinite; each time counts as a new epoch for shuffle and map. Time k of
  // epoch e is epoch e * count + k; of an infinite repeat, k.
  Dataset repeat(std::int64_t count = kInfinite) const;

  Dataset take(std::int64_t count) const;
  Dataset skip(std::int64_t count) const;

  // Every num_shards-th element, from element `index` on: what worker `index` of num_shards reads. All
  // workers must see upstream in one order, so shard before a shuffle, or give the shuffle a seed. Makes none
  // of the other elements, save those that a shuffle or a parallel map before it makes: shard first. Throws
  // InvalidArgument unless 0 <= index < num_shards.
  Dataset shard(std::int64_t num_shards, std::int64_t index) const;

  // A shard() whose numbers are filled in for each worker under AutoShardPolicy::kHint; until then, and for
  // one worker, all elements. TensorFlow's shard(SHARD_HINT, SHARD_HINT).
  Dataset shard_hint() const;

  // How several workers share this dataset, and what is made of it by later views. One worker has it all,
  // whatever the policy. TensorFlow's options().experimental_distribute.auto_shard_policy.
  Dataset with_auto_shard(AutoShardPolicy policy) const;
  AutoShardPolicy auto_shard_policy() const { return auto_shard_policy_; }

  // Keeps the elements of the first pass that reaches its end in memory, for every later pass of this Dataset
  // and its copies; they go with the last of these. A pass that ends sooner, or in an error, keeps nothing,
  // and one that had begun before goes on by itself.
  //
  // As in TensorFlow, what is kept is that pass's: a shuffle or random map before it is frozen as the pass
  // had it, whatever the seed and epoch of those that follow. Which pass is the first depends on who
  // iterates, and after a restart on where training resumes: put what is random after cache(). It draws as
  // without a cache.
  //
  // The tensors are shared, not copied: do not change them in place. A dataset without an end is not kept.
  Dataset cache() const;

  // A thread of its own prepares up to `count` elements ahead.
  Dataset prefetch(std::int64_t count) const;

  // How many elements one pass has, if that can be told without a pass: else kUnknown, or kInfinite.
  std::int64_t cardinality() const;

  // Rows of a full element after batch(); unset for a dataset of single examples.
  std::optional<std::int64_t> batch_size() const;

  DatasetIterator iterate(IterateOptions options = {}) const;

  // For views defined elsewhere (readers of files).
  explicit Dataset(std::shared_ptr<const internal::DatasetView> view) : view_(std::move(view)) {}
  const std::shared_ptr<const internal::DatasetView>& view() const { return view_; }

 private:
  // The same options, another view.
  Dataset with(std::shared_ptr<const internal::DatasetView> view) const;

  std::shared_ptr<const internal::DatasetView> view_;
  AutoShardPolicy auto_shard_policy_ = AutoShardPolicy::kAuto;
};

}  // namespace tandem
