#pragma once

namespace tandem::internal {

// gRPC orders a reaction after the call that started it, and the last one after all others, but by means that
// the thread sanitizer does not see: Debian's gRPC is not built with it. These tell it so that it can watch
// what the reactions do; in other builds they are nothing.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
inline void acquire_from_grpc(void* stream) {
  __tsan_acquire(stream);
}
inline void release_to_grpc(void* stream) {
  __tsan_release(stream);
}
#else
inline void acquire_from_grpc(void*) {}
inline void release_to_grpc(void*) {}
#endif

// Lives as long as a reaction; the last one of a stream, which may destroy it, only acquires.
class Reaction {
 public:
  explicit Reaction(void* stream) : stream_(stream) { acquire_from_grpc(stream_); }
  ~Reaction() { release_to_grpc(stream_); }
  Reaction(const Reaction&) = delete;
  Reaction& operator=(const Reaction&) = delete;

 private:
  void* stream_;
};

}  // namespace tandem::internal
