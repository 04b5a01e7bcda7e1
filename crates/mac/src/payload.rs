//! Megabytes that go to hosts: hashed once, read in pieces, never held in memory as a whole.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::config::hex;

/// How much is read at a time: a few packets of SSH.
const PIECE_BYTES: usize = 128 * 1024;

/// What is put on hosts as it is, with its checksum.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    source: Source,
    size_bytes: u64,
    sha256: Arc<str>,
}

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Bytes(Bytes),
    File(Arc<Path>),
}

impl Payload {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let sha256 = hex(&Sha256::digest(&bytes)).into();
        Self { size_bytes: bytes.len() as u64, sha256, source: Source::Bytes(bytes) }
    }

    /// A file, which must stay as it is: it is hashed now, and read again for every host. One that
    /// changes meanwhile is refused by the host.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let mut file = std::fs::File::open(&path)?;
        let (mut digest, mut size_bytes) = (Sha256::new(), 0);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                break;
            }
            digest.update(&piece[..read]);
            size_bytes += read as u64;
        }
        let sha256 = hex(&digest.finalize()).into();
        Ok(Self { source: Source::File(path.into()), size_bytes, sha256 })
    }

    /// Its SHA-256 in lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// How large it is.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// All of it, piece by piece.
    pub async fn pieces(&self) -> io::Result<Pieces> {
        Ok(match &self.source {
            Source::Bytes(bytes) => Pieces::Bytes(bytes.clone()),
            Source::File(path) => Pieces::File(File::open(path).await?),
        })
    }

    /// All of it at once, for those who have it in memory anyway: simulated Macs.
    pub fn bytes(&self) -> io::Result<Bytes> {
        match &self.source {
            Source::Bytes(bytes) => Ok(bytes.clone()),
            Source::File(path) => Ok(std::fs::read(path)?.into()),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes, sha256 {})", self.size_bytes, self.sha256)
    }
}

/// What is left of a payload that is being read.
#[derive(Debug)]
pub enum Pieces {
    /// These bytes.
    Bytes(Bytes),
    /// The rest of this file.
    File(File),
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = match self {
            Self::Bytes(bytes) => bytes.split_to(bytes.len().min(PIECE_BYTES)),
            Self::File(file) => {
                let mut piece = vec![0; PIECE_BYTES];
                let read = file.read(&mut piece).await?;
                piece.truncate(read);
                piece.into()
            }
        };
        Ok((!piece.is_empty()).then_some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn whole(payload: &Payload) -> (usize, Vec<u8>) {
        let mut pieces = payload.pieces().await.unwrap();
        let (mut count, mut all) = (0, Vec::new());
        while let Some(piece) = pieces.next().await.unwrap() {
            assert!(piece.len() <= PIECE_BYTES);
            count += 1;
            all.extend_from_slice(&piece);
        }
        (count, all)
    }

    #[tokio::test]
    async fn a_file_is_the_same_as_its_bytes_and_comes_in_pieces() {
        // B10
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let content: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|n| n.to_le_bytes()[0]).collect();
        std::fs::write(&path, &content).unwrap();
        let (file, bytes) = (Payload::open(&path).unwrap(), Payload::new(content.clone()));
        assert_eq!((file.sha256(), file.size_bytes()), (bytes.sha256(), bytes.size_bytes()));
        for payload in [&file, &bytes] {
            let (count, all) = whole(payload).await;
            assert!(count >= 4 && all == content);
            assert_eq!(payload.bytes().unwrap(), content);
        }
        assert!(Payload::open(folder.path().join("absent")).is_err());
    }
}
