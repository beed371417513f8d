// Weights in panels of 16 outputs, and how numbers are laid out in them.
//
// A panel has, for one input after another (for one group of 32 inputs after another, in the integer formats), the
// weights of its 16 outputs, so that a product reads memory in order. Outputs are padded to a multiple of 16 with
// zeros, inputs of integer formats to a multiple of 32.
//
//   FLOAT32           16 floats for each input
//   BFLOAT16          16 numbers for each input, output j beside output j + 8
//   FLOAT16           16 numbers for each input
//   INT8              for each group 16 scales (float16), then for each half of 8 outputs 8 vectors of
//                     8 outputs times 4 inputs; value = scale * q
//   INT4              the same with 4 vectors a half: the low nibbles are inputs 4i to 4i + 3, the high ones those
//                     16 further on; value = scale * (q - 8)
//   INT4_MIN          16 scales and 16 minima; value = scale * q + minimum
#pragma once

#include "vector.hpp"

namespace meshnode {

constexpr int PANEL = 16;
constexpr int GROUP = 32;

struct Matrix {
    int32_t format;
    int32_t outputs;
    int32_t inputs;
    const uint8_t* data;
    const float* bias;  // [outputs padded to a multiple of 16], or null

    int panels() const { return (outputs + PANEL - 1) / PANEL; }
    int groups() const { return (inputs + GROUP - 1) / GROUP; }
    bool integers() const { return format >= INT8; }
    int64_t panel_bytes() const {
        switch (format) {
            case FLOAT32: return int64_t(inputs) * PANEL * 4;
            case BFLOAT16:
            case FLOAT16: return int64_t(inputs) * PANEL * 2;
            default: return int64_t(groups()) * group_bytes();
        }
    }
    int group_bytes() const { return format == INT8 ? 544 : format == INT4 ? 288 : 320; }
    const uint8_t* panel(int index) const { return data + index * panel_bytes(); }
};

// Where weight (output, input) of an integer format lies in its group, behind the scales (and minima).
inline int quant_offset(int format, int output, int input) {
    const int half = output / 8, lane = output % 8;
    if (format == INT8) return half * 256 + input / 4 * 32 + lane * 4 + input % 4;
    return half * 128 + input % 16 / 4 * 32 + lane * 4 + input % 4;
}

inline int quants_at(int format) { return format == INT4_MIN ? 64 : 32; }

inline void pack_floats(const Matrix& m, const float* weights, uint8_t* to) {
    for (int panel = 0; panel < m.panels(); panel++) {
        uint8_t* out = to + panel * m.panel_bytes();
        for (int j = 0; j < PANEL; j++) {
            const int output = panel * PANEL + j;
            const float* row = weights + int64_t(output) * m.inputs;
            for (int k = 0; k < m.inputs; k++) {
                const float w = output < m.outputs ? row[k] : 0.0f;
                const int64_t at = int64_t(k) * PANEL;
                if (m.format == FLOAT32) reinterpret_cast<float*>(out)[at + j] = w;
                else if (m.format == FLOAT16) reinterpret_cast<uint16_t*>(out)[at + j] = to_float16(w);
                else reinterpret_cast<uint16_t*>(out)[at + j % 8 * 2 + j / 8] = to_bfloat16(w);
            }
        }
    }
}

// quants [outputs, groups * 32]; scales and minima float16 [outputs, groups].
inline void pack_integers(const Matrix& m, const int8_t* quants, const uint16_t* scales, const uint16_t* minima,
                          uint8_t* to) {
    const int groups = m.groups();
    std::memset(to, 0, size_t(m.panels() * m.panel_bytes()));
    for (int output = 0; output < m.outputs; output++) {
        const int j = output % PANEL;
        for (int g = 0; g < groups; g++) {
            uint8_t* group = to + output / PANEL * m.panel_bytes() + int64_t(g) * m.group_bytes();
            const int64_t block = int64_t(output) * groups + g;
            reinterpret_cast<uint16_t*>(group)[j] = scales[block];
            if (m.format == INT4_MIN) reinterpret_cast<uint16_t*>(group)[PANEL + j] = minima[block];
            for (int i = 0; i < GROUP; i++) {
                const uint8_t q = uint8_t(quants[block * GROUP + i]);
                uint8_t& at = group[quants_at(m.format) + quant_offset(m.format, j, i)];
                at = m.format == INT8 ? q : uint8_t(at | (q & 15) << (i >= 16 ? 4 : 0));
            }
        }
    }
}

// The weights of one output as floats, [inputs].
inline void unpack_row(const Matrix& m, int output, float* to) {
    const uint8_t* panel = m.panel(output / PANEL);
    const int j = output % PANEL;
    const auto* halves = reinterpret_cast<const uint16_t*>(panel);
    for (int k = 0; k < m.inputs; k++) {
        const int64_t at = int64_t(k) * PANEL;
        if (m.format == FLOAT32) {
            to[k] = reinterpret_cast<const float*>(panel)[at + j];
        } else if (m.format == FLOAT16) {
            to[k] = float16_to_float(halves[at + j]);
        } else if (m.format == BFLOAT16) {
            const uint32_t bits = uint32_t(halves[at + j % 8 * 2 + j / 8]) << 16;
            std::memcpy(to + k, &bits, 4);
        } else {
            const uint8_t* group = panel + int64_t(k / GROUP) * m.group_bytes();
            const auto* scales = reinterpret_cast<const uint16_t*>(group);
            const int i = k % GROUP;
            const uint8_t byte = group[quants_at(m.format) + quant_offset(m.format, j, i)];
            const float scale = float16_to_float(scales[j]);
            const int nibble = byte >> (i >= 16 ? 4 : 0) & 15;
            if (m.format == INT8) to[k] = scale * float(int8_t(byte));
            else if (m.format == INT4) to[k] = scale * float(nibble - 8);
            else to[k] = scale * float(nibble) + float16_to_float(scales[PANEL + j]);
        }
    }
}

}  // namespace meshnode
