// Products of rows with one panel of weights, or with two. An output's sum has one order, whatever the number of rows.
#pragma once

#include "floats.hpp"
#include "integers.hpp"

namespace meshnode {

inline void add_bias(const Matrix& m, int index, int rows, float* sums) {
    if (m.bias == nullptr) return;
    for (int i = 0; i < rows * PANEL; i++) sums[i] += m.bias[index * PANEL + i % PANEL];
}

// sums [rows, 16] of the panel's outputs, bias included.
inline void panel_product(const Matrix& m, int index, const Rows& x, int row, int rows, float* sums) {
    const uint8_t* panel = m.panel(index);
    if (!m.integers()) std::memset(sums, 0, size_t(rows) * PANEL * 4);
    switch (m.format) {
        case FLOAT32: float_product<FLOAT32>(m, panel, x, row, rows, sums); break;
        case BFLOAT16: float_product<BFLOAT16>(m, panel, x, row, rows, sums); break;
        case FLOAT16: float_product<FLOAT16>(m, panel, x, row, rows, sums); break;
        case INT8: integer_product<INT8>(m, panel, x, row, rows, sums); break;
        case INT4: integer_product<INT4>(m, panel, x, row, rows, sums); break;
        default: integer_product<INT4_MIN>(m, panel, x, row, rows, sums); break;
    }
    add_bias(m, index, rows, sums);
}

// The same for one or two panels from `index`: sums [panels, rows, 16].
inline void panel_products(const Matrix& m, int index, int panels, const Rows& x, int row, int rows, float* sums) {
#if defined(__AVX512F__)
    if (panels == 2 && !m.integers()) {
        std::memset(sums, 0, size_t(2 * rows) * PANEL * 4);
        switch (m.format) {
            case FLOAT32: paired_product<FLOAT32>(m, index, x, row, rows, sums); break;
            case BFLOAT16: paired_product<BFLOAT16>(m, index, x, row, rows, sums); break;
            default: paired_product<FLOAT16>(m, index, x, row, rows, sums); break;
        }
        for (int panel = 0; panel < 2; panel++) add_bias(m, index + panel, rows, sums + panel * rows * PANEL);
        return;
    }
#endif
    for (int panel = 0; panel < panels; panel++) {
        panel_product(m, index + panel, x, row, rows, sums + panel * rows * PANEL);
    }
}

}  // namespace meshnode
