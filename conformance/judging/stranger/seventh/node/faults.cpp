// The table of faults: id | kind | section | what is wrong. The parts are in faults_*.cpp.
#include "faults.hpp"
#include <cstring>

static const char* active = "";

static const vector<vector<Fault>>& parts() {
  static const vector<vector<Fault>> p = {faults_effects(), faults_fields(), faults_guards(), faults_limits(), faults_numbers(), faults_refusals(), faults_relations(), faults_routes()};
  return p;
}

bool choose_fault(const string& id) {
  for (auto& p : parts())
    for (auto& f : p) if (id == f.id) { active = f.id; return true; }
  return false;
}

bool fault(const char* id) { return !strcmp(id, active); }

json list_switches() {
  json f = json::object();
  for (auto& p : parts()) for (auto& x : p) f[x.id] = x.kind;
  return {{"faults", f}, {"peculiar", peculiar_ids()}};
}
