#include "common.hpp"
#include <chrono>
#include <cstring>
#include <ctime>
#include <lz4frame.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

i64 now_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

string iso(i64 us) {
  time_t s = us / 1000000;
  tm t;
  gmtime_r(&s, &t);
  char a[40], b[64];
  strftime(a, sizeof a, fault("timestamp-with-blank") ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%dT%H:%M:%S", &t);
  const char* zone = peculiar("timestamps-with-offset") ? "+00:00" : "Z";
  if (fault("timestamp-without-zone")) zone = "";
  if (peculiar("timestamps-in-milliseconds"))
    snprintf(b, sizeof b, "%s.%03d%s", a, int(us % 1000000 / 1000), zone);
  else
    snprintf(b, sizeof b, "%s.%06d%s", a, int(us % 1000000), zone);
  return b;
}

string day(i64 us, int plus) {
  time_t s = us / 1000000 + i64(plus) * 86400;
  tm t;
  gmtime_r(&s, &t);
  char a[40];
  strftime(a, sizeof a, fault("dates-with-slashes") ? "%Y/%m/%d" : fault("dates-day-first") ? "%d-%m-%Y" : "%Y-%m-%d", &t);
  return a;
}

string hex(const string& bytes) {
  static const char* d = "0123456789abcdef";
  string r;
  for (unsigned char c : bytes) { r += d[c >> 4]; r += d[c & 15]; }
  return r;
}

string unhex(const string& text) {
  if (text.size() % 2) return "";
  auto v = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  string r;
  for (size_t i = 0; i < text.size(); i += 2) {
    int a = v(text[i]), b = v(text[i + 1]);
    if (a < 0 || b < 0) return "";
    r += char(a * 16 + b);
  }
  return r;
}

string sha256(const string& b) {
  unsigned char d[32];
  SHA256((const unsigned char*)b.data(), b.size(), d);
  return string((char*)d, 32);
}
string sha1(const string& b) {
  unsigned char d[20];
  SHA1((const unsigned char*)b.data(), b.size(), d);
  return string((char*)d, 20);
}
string sha256_hex(const string& b) { return hex(sha256(b)); }

string base64(const string& b) {
  string r(4 * ((b.size() + 2) / 3) + 1, 0);
  int n = EVP_EncodeBlock((unsigned char*)r.data(), (const unsigned char*)b.data(), b.size());
  r.resize(n);
  return r;
}
bool unbase64(const string& t, string& out) {
  if (t.empty() || t.size() % 4) return false;
  out.assign(t.size(), 0);
  int n = EVP_DecodeBlock((unsigned char*)out.data(), (const unsigned char*)t.data(), t.size());
  if (n < 0) return false;
  if (t[t.size() - 1] == '=') n--;
  if (t[t.size() - 2] == '=') n--;
  out.resize(n);
  return true;
}

string lz4_frame(const string& b) {
  LZ4F_preferences_t p;
  memset(&p, 0, sizeof p);
  p.compressionLevel = 1;
  string r(LZ4F_compressFrameBound(b.size(), &p), 0);
  size_t n = LZ4F_compressFrame(r.data(), r.size(), b.data(), b.size(), &p);
  r.resize(LZ4F_isError(n) ? 0 : n);
  return r;
}
bool unlz4_frame(const string& b, string& out, size_t most) {
  LZ4F_dctx* c = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&c, LZ4F_VERSION))) return false;
  out.clear();
  size_t at = 0, left = 1;
  bool ok = true;
  vector<char> buf(1 << 16);
  while (at < b.size() && left) {
    size_t n = buf.size(), m = b.size() - at;
    left = LZ4F_decompress(c, buf.data(), &n, b.data() + at, &m, nullptr);
    if (LZ4F_isError(left) || (n == 0 && m == 0)) { ok = false; break; }
    out.append(buf.data(), n);
    at += m;
    if (out.size() > most) { ok = false; break; }
  }
  LZ4F_freeDecompressionContext(c);
  return ok && left == 0 && at == b.size();
}

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
std::uint64_t hash_text(const string& t) {
  std::uint64_t h = 1469598103934665603ull;
  for (unsigned char c : t) h = (h ^ c) * 1099511628211ull;
  return mix(h);
}
bool utf8_ok(const string& s) {
  try { json(s).dump(); return true; } catch (...) { return false; }
}
