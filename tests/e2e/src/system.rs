//! Facts and limits of a process, as the system reports them.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::Process;

impl Process {
    /// Number of its open descriptors.
    ///
    /// # Errors
    /// It has ended.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Limits the number of its descriptors from now on. Open ones remain open.
    ///
    /// # Errors
    /// The system has no `prlimit`, or refuses it.
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
        // After the name, which is in parentheses and may contain anything: proc(5).
        let (_, fields) = stat.rsplit_once(") ").context("no stat")?;
        let mut fields = fields.split(' ').skip(11);
        let mut ticks = || -> Result<f64> { Ok(fields.next().context("no ticks")?.parse()?) };
        Ok((ticks()? + ticks()?) / TICKS)
    }

    /// Bytes of resident memory.
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

/// Clock ticks per second, as the kernel reports them: proc(5), `USER_HZ`.
const TICKS: f64 = 100.0;
