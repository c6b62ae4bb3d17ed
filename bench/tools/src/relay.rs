//! A network with distance and loss, for kernels without `netem`: packets are read from one TUN
//! device, delayed, and written to the other; some are dropped.
//!
//! It creates both devices and prints `ready`. The caller then moves one into another network
//! namespace, which the open descriptor survives. A line on stdin, `MS PER_MILLE`, sets the delay
//! of each direction (half a round trip) and its loss from then on. The reply is the number of
//! packets since the previous line. Packets have the size of the device's MTU, because there is no
//! offloading, so a loss is that of a packet on a wire. The order is preserved.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// Relays between two new devices until stdin ends.
pub(crate) fn run(one: &str, other: &str) -> Result<()> {
    let devices = [device(one)?, device(other)?];
    let network = Arc::new(Network::default());
    for (from, to) in [(0, 1), (1, 0)] {
        let [from, to] = [from, to].map(|index: usize| devices.get(index).context("two devices"));
        let (from, to) = (from?.try_clone()?, to?.try_clone()?);
        let network = Arc::clone(&network);
        thread::spawn(move || {
            if let Err(error) = direction(from, to, &network) {
                eprintln!("bench-tools: relay: {error:#}");
            }
        });
    }
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (ms, per_mille) = line.split_once(' ').context("MS PER_MILLE")?;
        let delay = Duration::from_secs_f64(ms.parse::<f64>()? / 1000.0);
        let delay = u64::try_from(delay.as_nanos())?;
        network.delay_ns.store(delay, Ordering::Relaxed);
        network
            .loss_per_mille
            .store(per_mille.trim().parse()?, Ordering::Relaxed);
        let [passed, lost, overflowed] = [&network.passed, &network.lost, &network.overflowed]
            .map(|count| count.swap(0, Ordering::Relaxed));
        println!(r#"{{"passed": {passed}, "lost": {lost}, "overflowed": {overflowed}}}"#);
    }
    Ok(())
}

/// Settings and counters of both directions, in packets.
#[derive(Default)]
struct Network {
    delay_ns: AtomicU64,
    loss_per_mille: AtomicU64,
    passed: AtomicU64,
    lost: AtomicU64,
    /// Packets dropped because the queue was full.
    overflowed: AtomicU64,
}

/// Relays packets in one direction, forever.
fn direction(mut from: File, mut to: File, network: &Network) -> Result<()> {
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut free: Vec<Vec<u8>> = Vec::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ u64::try_from(from.as_raw_fd())?);
    loop {
        let now = Instant::now();
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, packet)) = waiting.pop_front() else {
                break;
            };
            // A packet is one write. A device that is down or full drops it, like a wire.
            let count = match to.write_all(&packet) {
                Ok(()) => &network.passed,
                Err(_) => &network.overflowed,
            };
            count.fetch_add(1, Ordering::Relaxed);
            free.push(packet);
        }
        let wait = waiting
            .front()
            .map(|(due, _)| TimeSpec::from_duration(due.saturating_duration_since(Instant::now())));
        ppoll(
            &mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)],
            wait,
            None,
        )?;
        let due = Instant::now() + Duration::from_nanos(network.delay_ns.load(Ordering::Relaxed));
        for _ in 0..BATCH {
            let mut packet = free.pop().unwrap_or_default();
            packet.resize(MAX_PACKET, 0);
            match from.read(&mut packet) {
                Ok(length) => packet.truncate(length),
                // The device is not up yet, or has no more packets.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    free.push(packet);
                    break;
                }
                Err(error) => return Err(error).context("reading packets"),
            }
            if dice.per_mille() < network.loss_per_mille.load(Ordering::Relaxed) {
                network.lost.fetch_add(1, Ordering::Relaxed);
                free.push(packet);
            } else if waiting.len() >= MAX_WAITING {
                network.overflowed.fetch_add(1, Ordering::Relaxed);
                free.push(packet);
            } else {
                waiting.push_back((due, packet));
            }
        }
    }
}

/// xorshift64*: enough for losses, and each run has the same ones.
struct Dice(u64);

impl Dice {
    fn per_mille(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % 1000
    }
}

/// A new non-blocking TUN device with this name, without packet headers.
fn device(name: &str) -> Result<File> {
    ensure!(name.len() < 16, "a device's name has 15 bytes at most");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .context("opening /dev/net/tun")?;
    // `struct ifreq`: 16 bytes of name, then the flags.
    let mut request = [0; IFREQ];
    for (to, from) in request.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    let flags = i16::try_from(nix::libc::IFF_TUN | nix::libc::IFF_NO_PI)?;
    for (to, from) in request.iter_mut().skip(16).zip(flags.to_ne_bytes()) {
        *to = from;
    }
    set_interface(&file, &request).with_context(|| format!("making the device {name}"))?;
    Ok(file)
}

#[expect(
    unsafe_code,
    reason = "TUN devices are made by an ioctl that no library here wraps"
)]
fn set_interface(file: &File, request: &[u8; IFREQ]) -> nix::Result<i32> {
    nix::ioctl_write_ptr_bad!(tun_set_iff, nix::libc::TUNSETIFF, [u8; IFREQ]);
    // SAFETY: the descriptor is open, and the kernel reads a `struct ifreq`, which has this size.
    unsafe { tun_set_iff(file.as_raw_fd(), request) }
}

/// The size of `struct ifreq` on 64-bit Linux.
const IFREQ: usize = 40;
/// Packets are no longer than the device's MTU, 1,500 bytes.
const MAX_PACKET: usize = 2048;
/// Maximum number of packets to read before due packets are written.
const BATCH: usize = 64;
/// 100 MB in one direction: more than is in flight here at 100 ms.
const MAX_WAITING: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_lost_at_ten_per_mille() {
        let mut dice = Dice(1);
        let lost = (0..100_000).filter(|_| dice.per_mille() < 10).count();
        assert!((900..1100).contains(&lost), "{lost}");
    }
}
