package Plum::Switch;
# Which fault and which peculiarities are switched on.
use strict;
use warnings;
use Exporter 'import';
our @EXPORT = qw(F P);
my (%fault, %peculiar);

sub F { return $fault{ $_[0] } }
sub P { return $peculiar{ $_[0] } }
sub set_fault    { $fault{ $_[0] }    = 1 }
sub set_peculiar { $peculiar{ $_[0] } = 1 }
1;
