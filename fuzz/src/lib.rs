//! Fuzz targets in the layout of `cargo fuzz`: `fuzz_targets/NAME.rs` is a program, `corpus/NAME` are its
//! inputs. A target is a function over bytes that panics when something is wrong.
//!
//! Built as it is, on a stable compiler, a target is fed by [`bricolage_testkit::driver`]; `cargo xtask fuzz
//! --target NAME` runs it. With a nightly compiler and `cargo install cargo-fuzz`, libFuzzer feeds it and
//! follows what it covers:
//!
//! ```text
//! cargo +nightly fuzz run NAME --features libfuzzer -- -timeout=5 -rss_limit_mb=1024
//! ```

use bricolage::Goal;
use bricolage_backend::Policy;

#[cfg(feature = "libfuzzer")]
pub use bricolage_testkit::serve_if_asked;
#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

/// The entry of the program of a [`bricolage_testkit::driver::Target`].
#[macro_export]
macro_rules! entry {
    ($target:expr) => {
        #[cfg(feature = "libfuzzer")]
        $crate::libfuzzer_sys::fuzz_target!(
            init: {
                if $crate::serve_if_asked().is_some() {
                    std::process::exit(0);
                }
            },
            |data: &[u8]| {
                ($target.run)(data);
            }
        );

        #[cfg(not(feature = "libfuzzer"))]
        fn main() -> std::process::ExitCode {
            $target.main()
        }
    };
}

/// A goal of one thread, under which every kernel sums as the reference does, but in another order.
pub fn plain_goal() -> Goal {
    Goal { policy: Policy::Strict, seed: 3, ..Goal::new(1) }
}

/// A seed and the choices after it, as generated graphs take them.
pub fn seed_and_choices(data: &[u8]) -> (u64, &[u8]) {
    let (seed, choices) = data.split_at(data.len().min(8));
    let mut bytes = [0; 8];
    bytes[..seed.len()].copy_from_slice(seed);
    (u64::from_le_bytes(bytes), choices)
}

/// New bytes of that form.
pub fn fresh_choices(rng: &mut bricolage_tensor::Rng) -> Vec<u8> {
    let len = 8 + rng.below(120);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}
