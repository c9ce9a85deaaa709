//! How many threads this process may use, and why.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What bounds the number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ThreadLimit {
    /// The processors that the process may run on.
    Affinity,
    /// A control group's quota of processor time, in processors.
    Quota {
        /// Processors' worth of time that the group may use.
        processors: f64,
        /// File that states the quota.
        file: PathBuf,
    },
    /// The affinity mask could not be read; the standard library's estimate was used.
    Unknown,
}

/// How many threads are worth starting, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AvailableThreads {
    /// Threads to use by default; at least 1.
    pub threads: usize,
    /// Processors in the affinity mask, in rising order; empty when it could not be read.
    pub mask: Vec<usize>,
    /// Which bound decided.
    pub limit: ThreadLimit,
}

/// Reads the affinity mask and the control groups' quotas of the calling process.
pub fn available_threads() -> AvailableThreads {
    let quota = quota(Path::new("/sys/fs/cgroup"), Path::new("/proc/self/cgroup"));
    decide(affinity_mask(), quota)
}

fn decide(mask: Vec<usize>, quota: Option<(f64, PathBuf)>) -> AvailableThreads {
    let (allowed, limit) = match mask.len() {
        0 => (std::thread::available_parallelism().map_or(1, usize::from), ThreadLimit::Unknown),
        n => (n, ThreadLimit::Affinity),
    };
    match quota {
        // A quota of 1.5 processors keeps two threads busy three quarters of the time.
        Some((processors, file)) if processors.ceil() < allowed as f64 => AvailableThreads {
            threads: (processors.ceil() as usize).max(1),
            mask,
            limit: ThreadLimit::Quota { processors, file },
        },
        _ => AvailableThreads { threads: allowed, mask, limit },
    }
}

/// The processors that the calling thread may run on, in rising order.
#[cfg(target_os = "linux")]
pub(crate) fn affinity_mask() -> Vec<usize> {
    // SAFETY: an all-zero `cpu_set_t` is a valid empty set, and the call writes no more than its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        set
    };
    // SAFETY: the index is below the number of bits of the set.
    (0..8 * size_of::<libc::cpu_set_t>()).filter(|&c| unsafe { libc::CPU_ISSET(c, &set) }).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn affinity_mask() -> Vec<usize> {
    Vec::new()
}

/// Binds the calling thread to `processor`; false when the system refuses or cannot.
#[cfg(target_os = "linux")]
pub(crate) fn pin_to(processor: usize) -> bool {
    if processor >= 8 * size_of::<libc::cpu_set_t>() {
        return false;
    }
    // SAFETY: an all-zero set is valid, the index was checked, and the call only reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn pin_to(_processor: usize) -> bool {
    false
}

/// The smallest quota on the path from the process's groups to the root, version 2 or 1.
fn quota(root: &Path, groups: &Path) -> Option<(f64, PathBuf)> {
    let groups = std::fs::read_to_string(groups).ok()?;
    let mut least: Option<(f64, PathBuf)> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let base = if controllers.is_empty() {
            root.to_path_buf()
        } else if controllers.split(',').any(|c| c == "cpu") {
            root.join(controllers)
        } else {
            continue;
        };
        let mut group = Some(Path::new(path.trim_start_matches('/')));
        while let Some(at) = group {
            if let Some((processors, file)) = group_quota(&base.join(at))
                && least.as_ref().is_none_or(|(l, _)| processors < *l)
            {
                least = Some((processors, file));
            }
            group = at.parent();
        }
    }
    least
}

fn group_quota(group: &Path) -> Option<(f64, PathBuf)> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let (quota, period, file) = if let Some(text) = read("cpu.max") {
        let mut words = text.split_whitespace().map(str::to_owned);
        (words.next()?, words.next()?, "cpu.max")
    } else {
        (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?, "cpu.cfs_quota_us")
    };
    let quota: f64 = quota.trim().parse().ok()?; // "max" is no number: no quota
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| (quota / period, group.join(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("bricolage-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_quota_up_the_tree_counts() {
        let root = tree(
            "cgroup2",
            &[
                ("groups", "0::/a/b\n"),
                ("cpu.max", "max 100000\n"),
                ("a/cpu.max", "150000 100000\n"),
                ("a/b/cpu.max", "400000 100000\n"),
            ],
        );
        let (processors, file) = quota(&root, &root.join("groups")).unwrap();
        assert_eq!((processors, file), (1.5, root.join("a/cpu.max")));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn version_1_groups_are_read_and_minus_one_is_no_quota() {
        let root = tree(
            "cgroup1",
            &[
                ("groups", "4:memory:/x\n3:cpu,cpuacct:/job\n"),
                ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ("cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
                ("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(quota(&root, &root.join("groups")).unwrap().0, 0.5);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_reason_names_the_bound() {
        let all = decide(vec![0, 3, 5], None);
        assert_eq!((all.threads, all.limit), (3, ThreadLimit::Affinity));
        let some = decide(vec![0, 3, 5], Some((1.5, PathBuf::from("q"))));
        assert_eq!(some.threads, 2);
        assert!(matches!(some.limit, ThreadLimit::Quota { processors: 1.5, .. }));
        assert_eq!(decide(vec![0], Some((0.2, PathBuf::from("q")))).threads, 1);
        assert!(available_threads().threads >= 1);
    }
}
