// Threads that share the items of one loop at a time.
//
// Each takes the next item when it has finished one, so a thread that the system delays holds up one item and
// not its share. Which thread computes an item has no influence on the result. A thread without work looks for
// more during a few microseconds and then sleeps: within a step the next loop begins sooner than that, and on a
// busy machine nobody waits at another's expense.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace meshnode {

class Threads {
public:
    explicit Threads(int count) {
        for (int i = 1; i < count; i++) workers_.emplace_back([this] { work(); });
    }

    ~Threads() {
        stopping_ = true;
        begun_.fetch_add(1);
        begun_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    int count() const { return int(workers_.size()) + 1; }

    // Call item(0) to item(items - 1), each once, in any order and on any thread.
    template <class Item>
    void run(int64_t items, const Item& item) {
        if (items <= 1 || workers_.empty()) {
            for (int64_t i = 0; i < items; i++) item(int(i));
            return;
        }
        // The tickets have 24 bits; longer loops are cut.
        for (int64_t from = 0; from < items; from += LIMIT) {
            share(uint64_t(std::min<int64_t>(items - from, LIMIT)), from, item);
        }
    }

private:
    static constexpr int64_t LIMIT = 1 << 20;
    static constexpr uint64_t FIELD = (1 << 24) - 1;
    static constexpr int LOOKS = 600;

    template <class Item>
    void share(uint64_t items, int64_t from, const Item& item) {
        context_ = &item;
        from_ = from;
        call_ = [](const void* context, int64_t i) { (*static_cast<const Item*>(context))(int(i)); };
        finished_.store(0, std::memory_order_relaxed);
        loop_ = (loop_ + 1) & 0xffff;
        tickets_.store(loop_ << 48 | items << 24, std::memory_order_release);
        begun_.fetch_add(1);
        begun_.notify_all();
        while (take()) {
        }
        for (int looks = 0;; looks++) {
            const uint32_t done = finished_.load(std::memory_order_acquire);
            if (done == items) return;
            if (looks < LOOKS) _mm_pause();
            else finished_.wait(done);
        }
    }

    // Compute one item; false if all are taken. A ticket carries the number of items of its loop, so one that
    // is drawn while the next loop is being set up is never taken for one of that loop.
    bool take() {
        const uint64_t ticket = tickets_.fetch_add(1, std::memory_order_acq_rel);
        const uint64_t items = ticket >> 24 & FIELD, index = ticket & FIELD;
        if (index >= items) return false;
        call_(context_, from_ + int64_t(index));
        if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == items) finished_.notify_all();
        return true;
    }

    void work() {
        uint32_t seen = 0;
        while (true) {
            for (int looks = 0; looks < LOOKS && begun_.load(std::memory_order_acquire) == seen; looks++) {
                _mm_pause();
            }
            begun_.wait(seen);
            seen = begun_.load(std::memory_order_acquire);
            if (stopping_) return;
            while (take()) {
            }
        }
    }

    std::vector<std::thread> workers_;
    std::atomic<uint64_t> tickets_{0};
    std::atomic<uint32_t> begun_{0}, finished_{0};
    std::atomic<bool> stopping_{false};
    uint64_t loop_ = 0;
    const void* context_ = nullptr;
    int64_t from_ = 0;
    void (*call_)(const void*, int64_t) = nullptr;
};

}  // namespace meshnode
