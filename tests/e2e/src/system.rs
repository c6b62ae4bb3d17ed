//! What the system says of a process, and what it allows it.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::Process;

impl Process {
    /// How many descriptors it has open.
    ///
    /// # Errors
    /// It has ended.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Lets it have so many descriptors from now on; what it has open stays.
    ///
    /// # Errors
    /// The system has no `prlimit`, or refuses.
    pub fn allow_descriptors(&self, most: usize) -> Result<()> {
        let done = Command::new("prlimit")
            .args(["--pid", &self.id().to_string()])
            .arg(format!("--nofile={most}:"))
            .status()
            .context("prlimit")?;
        ensure!(done.success(), "prlimit: {done}");
        Ok(())
    }

    /// Seconds of processor time that it has used.
    ///
    /// # Errors
    /// It has ended.
    pub fn processor_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // Behind the name, which is in parentheses and may hold anything: proc(5).
        let (_, fields) = stat.rsplit_once(") ").context("no stat")?;
        let mut fields = fields.split(' ').skip(11);
        let mut ticks = || -> Result<f64> { Ok(fields.next().context("no ticks")?.parse()?) };
        Ok((ticks()? + ticks()?) / TICKS)
    }

    /// Bytes of memory that it holds.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib.context("no VmRSS")?.parse::<u64>()? * 1024)
    }
}

/// Clock ticks in a second, as the kernel tells them to everybody: proc(5), `USER_HZ`.
const TICKS: f64 = 100.0;
