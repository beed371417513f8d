// Eight floats at a time, in an order of operations that the source fixes.
//
// A vector of sixteen, where the processor has it, is two of eight that are computed alike, and the compiler may not
// contract or reorder floating-point operations. So equal inputs give equal bits on every processor with AVX2, FMA and
// F16C.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace meshnode {

constexpr int LANES = 8;

inline float first(__m256 v) { return _mm256_cvtss_f32(v); }

// ((0+1)+(2+3)) + ((4+5)+(6+7)).
inline float sum(__m256 v) {
    __m256 pairs = _mm256_hadd_ps(v, v);
    __m256 fours = _mm256_hadd_ps(pairs, pairs);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

// Lane i of the result is sum(v[i]), to the bit.
inline __m256 sums(const __m256 v[8]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

#if defined(__AVX512F__)
// Two vectors of eight in one, whose halves are computed alike.
inline __m512 two_of(__m256 a, __m256 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }
inline __m256 lower(__m512 v) { return _mm512_castps512_ps256(v); }
inline __m256 upper(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

inline __m512 pairs(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

// The sums of the lower halves in the lower half, and those of the upper ones in the upper.
inline __m512 sums(const __m512 v[8]) {
    const __m512 a = pairs(pairs(v[0], v[1]), pairs(v[2], v[3])), b = pairs(pairs(v[4], v[5]), pairs(v[6], v[7]));
    const __m512 both = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    return _mm512_shuffle_f32x4(both, both, 0xd8);
}
#endif

inline float largest(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// e to the v, within two units in the last place; 0 below -87.3, and e^88 above 88.
inline __m256 exponential(__m256 v) {
    const __m256 below = _mm256_cmp_ps(v, _mm256_set1_ps(-87.3f), _CMP_LT_OQ);
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-87.3f)), _mm256_set1_ps(88.0f));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), v);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, r), r, _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
    return _mm256_andnot_ps(below, p);
}

#if defined(__AVX512F__)
// The same for sixteen, to the bit.
inline __m512 exponential(__m512 v) {
    const __mmask16 above = _mm512_cmp_ps_mask(v, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    v = _mm512_min_ps(_mm512_max_ps(v, _mm512_set1_ps(-87.3f)), _mm512_set1_ps(88.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(1.44269504f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), v);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    const __m512i power = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
    return _mm512_maskz_mov_ps(above, _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power)));
}
#endif

inline __m256 hyperbolic_tangent(__m256 v) {
    const __m256 one = _mm256_set1_ps(1.0f);
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-40.0f)), _mm256_set1_ps(40.0f));
    const __m256 e = exponential(_mm256_add_ps(v, v));
    return _mm256_div_ps(_mm256_sub_ps(e, one), _mm256_add_ps(e, one));
}

inline __m256 silu(__m256 v) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 e = exponential(_mm256_sub_ps(_mm256_setzero_ps(), v));
    return _mm256_div_ps(v, _mm256_add_ps(one, e));
}

// GELU in its approximation by a hyperbolic tangent.
inline __m256 gelu(__m256 v) {
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(v, v), v);
    const __m256 inner = _mm256_mul_ps(_mm256_set1_ps(0.7978845608f),
                                       _mm256_fmadd_ps(cube, _mm256_set1_ps(0.044715f), v));
    const __m256 half = _mm256_mul_ps(v, _mm256_set1_ps(0.5f));
    return _mm256_fmadd_ps(half, hyperbolic_tangent(inner), half);
}

// Formats of keys, values and weights.
enum Format : int32_t { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, INT8 = 3, INT4 = 4, INT4_MIN = 5 };

inline __m256 from_bfloat16(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

// Rounds to the nearest, ties to even; NaN stays NaN.
inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

inline float float16_to_float(uint16_t v) { return _cvtsh_ss(v); }
inline uint16_t to_float16(float v) { return _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT); }

}  // namespace meshnode
