//! A Mac over SSH: read, write, run; the steps that turn a factory Mac into a node.
