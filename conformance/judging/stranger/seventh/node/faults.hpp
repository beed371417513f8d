#pragma once
#include "common.hpp"
struct Fault { const char *id, *kind, *section, *what; };
vector<Fault> faults_effects();
vector<Fault> faults_fields();
vector<Fault> faults_guards();
vector<Fault> faults_limits();
vector<Fault> faults_numbers();
vector<Fault> faults_refusals();
vector<Fault> faults_relations();
vector<Fault> faults_routes();
vector<string> peculiar_ids();
