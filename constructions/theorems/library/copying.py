"""The weights of `analyzer.theorems.library.copying`: those of induction, for strings whose matches are unique."""

from constructions.theorems.library import induction

build = induction.build
slots = induction.slots
meanings = induction.meanings
