#pragma once
#include "common.hpp"
struct Generated { string id, text, reason; vector<string> pieces; int prompt_tokens = 0, tokens = 0; };
Generated generate(const string& prompt, int most, double temperature, const vector<string>& stop);
i64 price_of(const Generated& g);
