#!/usr/bin/env perl
# A node: HTTP on --port, gRPC on that port plus 1000. See OPERATOR.md.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Plum::Switch;

$SIG{PIPE} = 'IGNORE';
my $port = 8000;
my @rest = @ARGV;
if (@rest && $rest[0] eq 'sign') {
    require Plum::Keys;
    require Encode;
    binmode STDOUT;
    print Plum::Keys::sign_tool(@rest[ 1, 2 ]), "\n";
    exit 0;
}
require Plum::Catalogue;
while (defined(my $option = shift @rest)) {
    if    ($option eq '--port')     { $port = shift @rest }
    elsif ($option eq '--list')     { print Plum::Catalogue::listing(); exit 0 }
    elsif ($option eq '--fault')    { Plum::Catalogue::know(fault => $rest[0]);    Plum::Switch::set_fault(shift @rest) }
    elsif ($option eq '--peculiar') { Plum::Catalogue::know(peculiar => $rest[0]); Plum::Switch::set_peculiar(shift @rest) }
    else                            { die "unknown option $option\n" }
}
die "--port takes a number from 1 to 64535\n" unless $port =~ /^\d+$/ && $port >= 1 && $port <= 64_535;

require Mojo::IOLoop;
require Plum::Http;
require Plum::Service;
Plum::Text::start();
Plum::Model::start();
Plum::Ledger::start();
Plum::Node::start($port);
Plum::Chain::start();
Plum::Service::start();
Plum::Http::start($port);
Plum::Grpc::start($port + 1000);
$SIG{TERM} = $SIG{INT} = sub { exit 0 };
$| = 1;
print "ready http $port grpc ", $port + 1000, "\n";
Mojo::IOLoop->start;
