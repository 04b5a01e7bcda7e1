//! Which functions a Linux program brings itself, read from its symbol tables.

use std::path::Path;

/// Number at `at`, little-endian, of so many bytes.
fn number(file: &[u8], at: usize, bytes: usize) -> usize {
    let mut value = 0;
    for byte in file[at..at + bytes].iter().rev() {
        value = value << 8 | usize::from(*byte);
    }
    value
}

/// Whether the ELF program at `path` defines a symbol called `name`: imports do not count.
pub fn defines(path: &Path, name: &str) -> bool {
    let file = std::fs::read(path).expect("the program can be read");
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "64-bit, little-endian");
    let (table, size, count) =
        (number(&file, 0x28, 8), number(&file, 0x3a, 2), number(&file, 0x3c, 2));
    let section = |index: usize| table + index * size;
    let mut symbols = 0;
    for index in 0..count {
        let header = section(index);
        // 2 is a whole symbol table, 11 the one for the loader.
        if !matches!(number(&file, header + 4, 4), 2 | 11) {
            continue;
        }
        let (from, length) = (number(&file, header + 24, 8), number(&file, header + 32, 8));
        let names = number(&file, section(number(&file, header + 40, 4)) + 24, 8);
        for at in (from..from + length).step_by(24) {
            symbols += 1;
            let text = &file[names + number(&file, at, 4)..];
            let defined = number(&file, at + 6, 2) != 0;
            if defined && text.starts_with(name.as_bytes()) && text[name.len()] == 0 {
                return true;
            }
        }
    }
    assert!(symbols > 0, "the program has no symbols to look at");
    false
}
