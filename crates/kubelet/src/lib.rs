//! The shell on the Mac: registers the Node and runs each Pod as one Tart VM.
