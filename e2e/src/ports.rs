//! Ports on loopback that no other run takes.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// Below the range that the kernel gives to outgoing connections.
const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;
/// Ports of one block, the one that holds it included.
const BLOCK: u16 = 64;

/// A block of ports. Its first port is bound for as long as this lives, which locks all the others:
/// parallel runs never hand out the same port, and a dead run's block is free at once.
#[derive(Debug)]
pub struct Ports {
    _held: TcpListener,
    next: u16,
    end: u16,
}

impl Ports {
    /// The first block that nobody holds.
    pub fn take() -> Result<Self> {
        let mut blocks = (FIRST..LAST).step_by(usize::from(BLOCK));
        let held = blocks.find_map(|first| Some((first, bind(first)?)));
        let (first, held) = held.context("no free block of ports on loopback")?;
        Ok(Self { _held: held, next: first + 1, end: first + BLOCK })
    }

    /// A port of the block that was not given out yet and that nothing listens on.
    pub fn free(&mut self) -> Result<u16> {
        let port = (self.next..self.end).find(|port| bind(*port).is_some());
        let port = port.context("a control plane has used up its ports")?;
        self.next = port + 1;
        Ok(port)
    }
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_blocks_share_no_port_and_a_taken_port_is_passed_over() {
        let (mut one, mut two) = (Ports::take().unwrap(), Ports::take().unwrap());
        let first = one.free().unwrap();
        let _foreign = bind(first + 1).unwrap();
        let mut ports = vec![first, one.free().unwrap(), two.free().unwrap(), two.free().unwrap()];
        assert_eq!(ports[1], first + 2);
        ports.dedup();
        assert_eq!(ports.len(), 4);
    }
}
