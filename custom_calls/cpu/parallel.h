// A loop over chunks on XLA's thread pool that cannot deadlock: the caller takes chunks itself, and waits only for
// chunks that somebody has already taken. A helper that starts late, or never, finds nothing to do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace xbar {

template <class Body>
void parallel_for(xla::ffi::ThreadPool& pool, int64_t chunks, const Body& body) {
  const int64_t threads = chunks > 1 ? pool.num_threads() : 1;
  if (threads <= 1) {
    for (int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable finished;
  };
  auto shared = std::make_shared<Shared>();
  // `body` lives on the caller's stack; it is touched only by who holds a chunk, and the caller waits for those.
  auto work = [shared, chunks, pointer = &body] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < chunks;) {
      (*pointer)(i);
      if (shared->done.fetch_add(1) + 1 == chunks) {
        std::lock_guard<std::mutex> lock(shared->mutex);
        shared->finished.notify_all();
      }
    }
  };
  const int64_t helpers = (threads < chunks ? threads : chunks) - 1;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(decltype(work)(work));
  work();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done.load() == chunks; });
}

}  // namespace xbar
