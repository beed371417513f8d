// Things that every part of the node uses.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

using json = nlohmann::json;
using i64 = std::int64_t;
using std::string;
using std::vector;

// Switches (faults.cpp, peculiar.cpp).
bool fault(const char* id);
bool peculiar(const char* id);
bool choose_fault(const string& id);
bool choose_peculiar(const string& id);
json list_switches();

// Small helpers (util.cpp).
i64 now_us();
string iso(i64 us);                 // timestamp
string day(i64 us, int plus = 0);   // date
string hex(const string& bytes);
string unhex(const string& text);   // empty if it is no hexadecimal text
string sha256(const string& bytes);
string sha1(const string& bytes);
string sha256_hex(const string& bytes);
string base64(const string& bytes);
bool unbase64(const string& text, string& out);
string lz4_frame(const string& bytes);
bool unlz4_frame(const string& bytes, string& out, size_t most);
std::uint64_t mix(std::uint64_t x);
std::uint64_t hash_text(const string& text);
bool utf8_ok(const string& s);

constexpr i64 UNIT = 1000000;   // atoms in a whole unit
inline double units(i64 atoms) { return double(atoms) / UNIT; }
