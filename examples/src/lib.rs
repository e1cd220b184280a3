//! The training programs of memtrack live beside this file, one folder each.
