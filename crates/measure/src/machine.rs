//! What a measured time depends on besides the work: the processor and its surroundings.

use serde::{Deserialize, Serialize};
use std::fs;

/// One level of the first processor's caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2 or 3.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Bytes.
    pub bytes: u64,
}

/// The machine as far as it can be read without privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor architecture.
    pub arch: String,
    /// Maker of the processor.
    pub vendor: String,
    /// Model name.
    pub model: String,
    /// Family, model number and stepping.
    pub revision: String,
    /// Microcode version, if the system tells.
    pub microcode: String,
    /// Instruction sets that kernels may use.
    pub features: Vec<String>,
    /// Caches of the first processor.
    pub caches: Vec<Cache>,
    /// Processors that are online.
    pub processors: u32,
    /// Frequency governor, if the system tells.
    pub governor: String,
    /// Bytes of main memory.
    pub memory: u64,
    /// Operating system and kernel release.
    pub system: String,
}

/// Bytes of main memory that this process and others may still take; 0 where the system does not tell.
pub fn free_memory() -> u64 {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    // The control group of a container may allow less than the machine has.
    let allowed = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    let free = meminfo("MemAvailable:");
    free.into_iter().chain(allowed).min().unwrap_or(0)
}

/// A line of the system's account of memory, in bytes.
fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

impl Machine {
    /// Reads the machine that this process runs on.
    pub fn read() -> Machine {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name));
            line.and_then(|l| l.split(':').nth(1)).map(|v| v.trim().to_owned()).unwrap_or_default()
        };
        let revision = format!("{}/{}/{}", field("cpu family"), field("model"), field("stepping"));
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Machine {
            arch: std::env::consts::ARCH.to_owned(),
            vendor: field("vendor_id"),
            model: field("model name"),
            revision,
            microcode: field("microcode"),
            features: features(),
            caches: caches(),
            processors: info.lines().filter(|l| l.starts_with("processor")).count() as u32,
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory: meminfo("MemTotal:").unwrap_or(0),
            system: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease")),
        }
    }

    /// A hash of everything that changes how fast kernels run; memory size and the kernel release
    /// are left out.
    pub fn fingerprint(&self) -> String {
        let key = (
            (&self.arch, &self.vendor, &self.model, &self.revision, &self.microcode),
            (&self.features, &self.caches, self.processors, &self.governor),
        );
        let text = serde_json::to_string(&key).expect("strings and numbers serialise");
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    }

    /// Bytes of the largest cache, or 32 MiB when the system does not tell.
    pub fn last_level_cache(&self) -> u64 {
        self.caches.iter().map(|c| c.bytes).max().unwrap_or(32 << 20)
    }
}

fn features() -> Vec<String> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! detect {
            ($($name:tt)*) => { $( if std::arch::is_x86_feature_detected!($name) { found.push($name.to_owned()); } )* };
        }
        detect!("sse4.2" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512vnni" "avx512bf16");
    }
    #[cfg(target_arch = "aarch64")]
    found.push("neon".to_owned());
    found
}

fn caches() -> Vec<Cache> {
    let read = |index: u32, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
    };
    (0..8)
        .map_while(|i| {
            let size = read(i, "size")?;
            let (digits, unit) =
                size.split_at(size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len()));
            let unit = match unit {
                "K" => 1 << 10,
                "M" => 1 << 20,
                _ => 1,
            };
            Some(Cache {
                level: read(i, "level")?.parse().ok()?,
                kind: read(i, "type")?,
                bytes: digits.parse::<u64>().ok()? * unit,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_stable_fingerprint() {
        let machine = Machine::read();
        assert_eq!(machine.fingerprint(), Machine::read().fingerprint());
        assert_ne!(
            machine.fingerprint(),
            Machine { model: "other".into(), ..machine.clone() }.fingerprint()
        );
        assert!(machine.processors > 0 && machine.memory > 0);
        assert!((1..=machine.memory).contains(&free_memory()));
    }
}
