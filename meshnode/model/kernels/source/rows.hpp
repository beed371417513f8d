// Rows of inputs, as products read them, and what is fetched from memory before it is needed.
#pragma once

#include <algorithm>

#include "matrix.hpp"

namespace meshnode {

// For integer formats each group of 32 inputs is rounded to int8 with a scale.
struct Rows {
    const float* values;     // [rows, inputs]
    int64_t stride;          // from row to row of the values
    const int8_t* quants;    // [rows, groups * 32]
    int64_t quants_stride;   // from row to row of the quants
    const float* scales;     // [rows, groups]
    const int32_t* totals;   // [rows, groups], sums of the quants
};

inline void quantise_row(const float* x, int inputs, int8_t* quants, float* scales, int32_t* totals) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int g = 0; g * GROUP < inputs; g++) {
        alignas(32) float padded[GROUP] = {};
        const float* from = x + g * GROUP;
        if (inputs - g * GROUP < GROUP) {
            std::memcpy(padded, from, size_t(inputs - g * GROUP) * 4);
            from = padded;
        }
        __m256 v[4], most = _mm256_setzero_ps(), poison = _mm256_setzero_ps();
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(from + i * LANES);
            most = _mm256_max_ps(_mm256_andnot_ps(sign, v[i]), most);
            poison = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), poison);
        }
        const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(poison, poison, _CMP_UNORD_Q)) == 0;
        const float peak = largest(most);
        const __m256 factor = _mm256_set1_ps(peak > 0 ? 127.0f / peak : 0.0f);
        const __m256i bound = _mm256_set1_epi32(127);
        __m256i total = _mm256_setzero_si256(), whole[4];
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
            // Beyond 127 only if the factor overflowed, that is for peaks below 1e-36.
            whole[i] = _mm256_max_epi32(_mm256_min_epi32(whole[i], bound), _mm256_set1_epi32(-127));
            total = _mm256_add_epi32(total, whole[i]);
        }
        alignas(32) int32_t numbers[GROUP], parts[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) _mm256_store_si256(reinterpret_cast<__m256i*>(numbers) + i, whole[i]);
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), total);
        for (int i = 0; i < GROUP; i++) quants[g * GROUP + i] = int8_t(numbers[i]);
        totals[g] = 0;
        for (int part : parts) totals[g] += part;
        // Infinity and NaN become NaN, so that the engine can refuse them.
        scales[g] = finite ? peak / 127.0f : std::numeric_limits<float>::quiet_NaN();
    }
}

// The processor's own prefetching stops at the end of each page of 4 KiB.
constexpr int64_t AHEAD = 4096;

inline void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

// What a loop over a panel fetches from memory: `step` bytes further in each round. Where several tiles of rows read
// the panel one after another, only the first would wait for memory. So each tile fetches its share of what comes next.
struct Ahead {
    const uint8_t* at;
    int64_t step;

    void fetch(int64_t round) const {
        for (int64_t i = 0; i < step; i += 64) prefetch(at + round * step + i);
    }
};

inline Ahead ahead_of(const uint8_t* from, int64_t bytes, int rounds, int tile, int tiles) {
    if (tiles == 1) return {from + AHEAD, bytes / rounds};
    return {from + bytes + bytes / tiles * tile, bytes / rounds / tiles};
}

}  // namespace meshnode
