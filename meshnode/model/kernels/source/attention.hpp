// Attention of queries over the keys and values of their session.
//
// Keys are taken in blocks of 64 that begin at multiples of 64, counted from the session's first position, with a
// running maximum. So what a position computes depends on its own position alone: not on whether it is computed by
// itself or among others, and not on where a chunk begins.
#pragma once

#include <algorithm>
#include <vector>

#include "vector.hpp"

namespace meshnode {

constexpr int BLOCK = 64;

// The keys and values of one session. Position p of block b = p / 64 lies at
//   address(b) + ((layer * layer_stride + which * kind_stride + head * head_stride) + p % 64 * head_dim) * size.
struct Cache {
    uint8_t* base;                // the first position, if blocks is null: then block b is 64 * b positions on
    uint8_t* const* blocks;       // or the address of each block
    int64_t layer_stride, kind_stride, head_stride;  // in numbers

    uint8_t* block(int index, int layer, int kind, int head, int head_dim, int size) const {
        const int64_t offset = layer * layer_stride + kind * kind_stride + head * head_stride;
        uint8_t* start = blocks ? blocks[index] : base + int64_t(index) * BLOCK * head_dim * size;
        return start + offset * size;
    }
};

// Rows of one session at consecutive positions, and some heads that share a key-value head.
struct AttentionTile {
    const Cache* cache;
    int row, rows, position, head, heads, kv_head;
};

struct AttentionShape {
    int layer, head_dim, num_heads, window, format;
    float softcap;  // 0: none
};

inline const float* as_floats(const uint8_t* from, int numbers, int format, float* scratch) {
    if (format == FLOAT32) return reinterpret_cast<const float*>(from);
    const auto* v = reinterpret_cast<const __m128i*>(from);
    for (int i = 0; i < numbers / LANES; i++) {
        const __m128i half = _mm_loadu_si128(v + i);
        _mm256_storeu_ps(scratch + i * LANES, format == FLOAT16 ? _mm256_cvtph_ps(half) : from_bfloat16(half));
    }
    return scratch;
}

inline void write_floats(uint8_t* to, const float* from, int numbers, int format) {
    if (format == FLOAT32) {
        std::memcpy(to, from, size_t(numbers) * 4);
    } else if (format == FLOAT16) {
        for (int i = 0; i < numbers; i += LANES) {
            const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), half);
        }
    } else {
        for (int i = 0; i < numbers; i++) reinterpret_cast<uint16_t*>(to)[i] = to_bfloat16(from[i]);
    }
}

// scores[j] = query . keys[j] for from <= j < to. A sum's order is that of sum() in any case.
inline void scores_of(const float* query, const float* keys, int head_dim, int from, int to, float* scores) {
    int j = from;
    for (; j + 8 <= to; j += 8) {
        __m256 parts[8];
        for (auto& part : parts) part = _mm256_setzero_ps();
        for (int d = 0; d < head_dim; d += LANES) {
            const __m256 q = _mm256_loadu_ps(query + d);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                parts[i] = _mm256_fmadd_ps(q, _mm256_loadu_ps(keys + (j + i) * head_dim + d), parts[i]);
            }
        }
        _mm256_storeu_ps(scores + j, sums(parts));
    }
    for (; j < to; j++) {
        __m256 part = _mm256_setzero_ps();
        for (int d = 0; d < head_dim; d += LANES) {
            part = _mm256_fmadd_ps(_mm256_loadu_ps(query + d), _mm256_loadu_ps(keys + j * head_dim + d), part);
        }
        scores[j] = sum(part);
    }
}

template <int VECTORS>
inline void add_values(const float* weights, const float* values, int head_dim, int from, int to, float factor,
                       float* mixed) {
    __m256 parts[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        parts[i] = _mm256_mul_ps(_mm256_loadu_ps(mixed + i * LANES), _mm256_set1_ps(factor));
    }
    for (int j = from; j < to; j++) {
        const __m256 weight = _mm256_broadcast_ss(weights + j);
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++) {
            parts[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(values + j * head_dim + i * LANES), parts[i]);
        }
    }
    for (int i = 0; i < VECTORS; i++) _mm256_storeu_ps(mixed + i * LANES, parts[i]);
}

inline void add_values(const float* weights, const float* values, int head_dim, int from, int to, float factor,
                       float* mixed) {
    int at = 0;
    for (; at + 64 <= head_dim; at += 64) add_values<8>(weights, values + at, head_dim, from, to, factor, mixed + at);
    for (; at < head_dim; at += 8) add_values<1>(weights, values + at, head_dim, from, to, factor, mixed + at);
}

#if defined(__AVX512F__)
constexpr int TOGETHER = 4;
#else
constexpr int TOGETHER = 1;
#endif

// Queries that go through a block of keys and values together.
struct Group {
    int count;  // 1, 2 or 4
    int from[TOGETHER], to[TOGETHER];  // the keys that each sees, at least one
    const float* queries[TOGETHER];
    float* mixed[TOGETHER];
    float* scores[TOGETHER];  // then weights
    float factors[TOGETHER];  // of what was mixed before

    // The keys that are read once for all; none if that is not worth it.
    int first() const { return count > 1 ? *std::max_element(from, from + count) : BLOCK; }
    int last() const { return count > 1 ? std::max(first(), *std::min_element(to, to + count)) : BLOCK; }
};

#if defined(__AVX512F__)
// Each vector has a query in its lower half and one in its upper, so that a sum has the order of scores_of.
template <int PAIRS>
inline void shared_scores(const Group& group, const float* keys, int head_dim, int from, int to) {
    const auto pair = [&](int p, int d) {
        return two_of(_mm256_loadu_ps(group.queries[2 * p] + d), _mm256_loadu_ps(group.queries[2 * p + 1] + d));
    };
    const auto key = [&](int j, int d) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(keys + j * head_dim + d)); };
    int j = from;
    for (; j + 8 <= to; j += 8) {
        __m512 parts[PAIRS][8];
        for (auto& some : parts) std::fill_n(some, 8, _mm512_setzero_ps());
        for (int d = 0; d < head_dim; d += LANES) {
            __m512 q[PAIRS];
#pragma GCC unroll 2
            for (int p = 0; p < PAIRS; p++) q[p] = pair(p, d);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                const __m512 k = key(j + i, d);
#pragma GCC unroll 2
                for (int p = 0; p < PAIRS; p++) parts[p][i] = _mm512_fmadd_ps(q[p], k, parts[p][i]);
            }
        }
        for (int p = 0; p < PAIRS; p++) {
            const __m512 both = sums(parts[p]);
            _mm256_storeu_ps(group.scores[2 * p] + j, lower(both));
            _mm256_storeu_ps(group.scores[2 * p + 1] + j, upper(both));
        }
    }
    for (; j < to; j++) {
        for (int p = 0; p < PAIRS; p++) {
            __m512 part = _mm512_setzero_ps();
            for (int d = 0; d < head_dim; d += LANES) part = _mm512_fmadd_ps(pair(p, d), key(j, d), part);
            group.scores[2 * p][j] = sum(lower(part));
            group.scores[2 * p + 1][j] = sum(upper(part));
        }
    }
}

// VECTORS vectors of each value, from the number at `at` on.
template <int COUNT, int VECTORS>
inline void add_shared_values(const Group& group, const float* values, int head_dim, int at, int from, int to) {
    __m512 parts[COUNT][VECTORS];
#pragma GCC unroll 4
    for (int q = 0; q < COUNT; q++) {
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS; i++) {
            parts[q][i] = _mm512_mul_ps(_mm512_loadu_ps(group.mixed[q] + at + i * 16), _mm512_set1_ps(group.factors[q]));
        }
    }
    for (int j = from; j < to; j++) {
        __m512 value[VECTORS];
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS; i++) value[i] = _mm512_loadu_ps(values + j * head_dim + at + i * 16);
#pragma GCC unroll 4
        for (int q = 0; q < COUNT; q++) {
            const __m512 weight = _mm512_set1_ps(group.scores[q][j]);
#pragma GCC unroll 4
            for (int i = 0; i < VECTORS; i++) parts[q][i] = _mm512_fmadd_ps(weight, value[i], parts[q][i]);
        }
    }
#pragma GCC unroll 4
    for (int q = 0; q < COUNT; q++) {
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS; i++) _mm512_storeu_ps(group.mixed[q] + at + i * 16, parts[q][i]);
    }
}

template <int COUNT>
inline void add_shared_values(const Group& group, const float* values, int head_dim, int from, int to) {
    int at = 0;
    for (; at + 64 <= head_dim; at += 64) add_shared_values<COUNT, 4>(group, values, head_dim, at, from, to);
    for (; at + 16 <= head_dim; at += 16) add_shared_values<COUNT, 1>(group, values, head_dim, at, from, to);
    for (int q = 0; q < COUNT && at < head_dim; q++) {
        add_values<1>(group.scores[q], values + at, head_dim, from, to, group.factors[q], group.mixed[q] + at);
    }
}
#endif

inline void scores_of(const Group& group, const float* keys, int head_dim) {
    const int first = group.first(), last = group.last();
#if defined(__AVX512F__)
    if (first < last) (group.count == 4 ? shared_scores<2> : shared_scores<1>)(group, keys, head_dim, first, last);
#endif
    for (int q = 0; q < group.count; q++) {
        const int from = group.from[q], to = group.to[q];
        scores_of(group.queries[q], keys, head_dim, from, std::min(first, to), group.scores[q]);
        scores_of(group.queries[q], keys, head_dim, std::max(last, from), to, group.scores[q]);
    }
}

inline void add_values(Group& group, const float* values, int head_dim) {
    const int first = group.first(), last = group.last();
    const auto alone = [&](int q, int from, int to) {
        if (from >= to) return;
        add_values(group.scores[q], values, head_dim, from, to, group.factors[q], group.mixed[q]);
        group.factors[q] = 1.0f;
    };
    for (int q = 0; q < group.count; q++) alone(q, group.from[q], std::min(first, group.to[q]));
#if defined(__AVX512F__)
    if (first < last) {
        (group.count == 4 ? add_shared_values<4> : add_shared_values<2>)(group, values, head_dim, first, last);
        std::fill_n(group.factors, group.count, 1.0f);
    }
#endif
    for (int q = 0; q < group.count; q++) alone(q, std::max(last, group.from[q]), group.to[q]);
}

// Turns scores[from, to) of a block into weights, and the others into 0. Returns the factor of what was before.
inline float weigh(float* scores, int from, int to, float softcap, float& peak, float& total) {
    constexpr float NONE = -std::numeric_limits<float>::infinity();
    for (int j = from; softcap > 0 && j < to; j += LANES) {
        // What is beyond `to` is overwritten below.
        const __m256 cap = _mm256_set1_ps(softcap), score = _mm256_loadu_ps(scores + j);
        _mm256_storeu_ps(scores + j, _mm256_mul_ps(cap, hyperbolic_tangent(_mm256_div_ps(score, cap))));
    }
    std::fill(scores, scores + from, NONE);
    std::fill(scores + to, scores + BLOCK, NONE);
    __m256 most = _mm256_set1_ps(NONE);
    for (int j = 0; j < BLOCK; j += LANES) most = _mm256_max_ps(_mm256_loadu_ps(scores + j), most);
    const float before = peak;
    peak = std::max(before, largest(most));
    __m256 sums = _mm256_setzero_ps();
#if defined(__AVX512F__)
    for (int j = 0; j < BLOCK; j += 2 * LANES) {
        const __m512 weight = exponential(_mm512_sub_ps(_mm512_loadu_ps(scores + j), _mm512_set1_ps(peak)));
        _mm512_storeu_ps(scores + j, weight);
        sums = _mm256_add_ps(_mm256_add_ps(sums, lower(weight)), upper(weight));
    }
#else
    for (int j = 0; j < BLOCK; j += LANES) {
        const __m256 weight = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(peak)));
        _mm256_storeu_ps(scores + j, weight);
        sums = _mm256_add_ps(sums, weight);
    }
#endif
    const float factor = meshnode::first(exponential(_mm256_set1_ps(before - peak)));
    total = std::fma(total, factor, sum(sums));
    return factor;
}

// queries and mixed are [rows, stride], scaled and rotated; heads lie one after another.
inline void attend(const AttentionTile& tile, const AttentionShape& shape, const float* queries, int64_t stride,
                   float* mixed, int64_t mixed_stride) {
    thread_local std::vector<float> space;
    const int d = shape.head_dim, count = tile.rows * tile.heads, size = shape.format == FLOAT32 ? 4 : 2;
    // A vector of scores may be written beyond a block's end.
    space.resize(size_t(2 * BLOCK * d + 2 * count + TOGETHER * (BLOCK + LANES)));
    float *key_space = space.data(), *value_space = key_space + BLOCK * d;
    float *peaks = value_space + BLOCK * d, *totals = peaks + count, *scores = totals + count;
    std::fill_n(peaks, count, -std::numeric_limits<float>::infinity());
    std::fill_n(totals, count, 0.0f);
    const auto head_of = [&](int query) { return (tile.head + query % tile.heads) * d; };
    const auto out_of = [&](int query) { return mixed + (tile.row + query / tile.heads) * mixed_stride + head_of(query); };
    for (int i = 0; i < count; i++) std::fill_n(out_of(i), d, 0.0f);
    const auto first_key = [&](int position) { return shape.window > 0 ? std::max(0, position - shape.window + 1) : 0; };
    const int last = tile.position + tile.rows - 1;
    for (int block = first_key(tile.position) / BLOCK; block <= last / BLOCK; block++) {
        const int start = block * BLOCK, numbers = std::min(BLOCK, last + 1 - start) * d;
        const float* keys =
            as_floats(tile.cache->block(block, shape.layer, 0, tile.kv_head, d, size), numbers, shape.format, key_space);
        const float* values =
            as_floats(tile.cache->block(block, shape.layer, 1, tile.kv_head, d, size), numbers, shape.format, value_space);
        const auto from = [&](int i) { return std::max(0, first_key(tile.position + i / tile.heads) - start); };
        const auto to = [&](int i) { return std::min(BLOCK, tile.position + i / tile.heads + 1 - start); };
        // Those that see nothing of the block are the first ones, or the last.
        int begin = 0, end = count;
        while (begin < end && from(begin) >= to(begin)) begin++;
        while (begin < end && from(end - 1) >= to(end - 1)) end--;
        for (int i = begin; i < end;) {
            Group group;
            group.count = end - i >= TOGETHER ? TOGETHER : std::min({TOGETHER, 2, end - i});
            for (int q = 0; q < group.count; q++) {
                group.from[q] = from(i + q), group.to[q] = to(i + q);
                group.queries[q] = queries + (tile.row + (i + q) / tile.heads) * stride + head_of(i + q);
                group.mixed[q] = out_of(i + q);
                group.scores[q] = scores + q * (BLOCK + LANES);
            }
            scores_of(group, keys, d);
            for (int q = 0; q < group.count; q++) {
                group.factors[q] =
                    weigh(group.scores[q], group.from[q], group.to[q], shape.softcap, peaks[i + q], totals[i + q]);
            }
            add_values(group, values, d);
            i += group.count;
        }
    }
    for (int i = 0; i < count; i++) {
        float* out = out_of(i);
        const __m256 total = _mm256_set1_ps(totals[i]);
        for (int j = 0; j < d; j += LANES) _mm256_storeu_ps(out + j, _mm256_div_ps(_mm256_loadu_ps(out + j), total));
    }
}

}  // namespace meshnode
