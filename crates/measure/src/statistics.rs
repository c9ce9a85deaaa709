//! Medians and ratios with confidence intervals from order statistics: no assumption about the
//! distribution, but for ratios that the noise of both sides is alike.

use serde::{Deserialize, Serialize};

/// The value below which a share `q` of the sorted samples lies, interpolated.
///
/// Panics on an empty slice.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] * (1.0 - part) + sorted[high] * part
}

/// Median and 95 % confidence interval of sorted samples: the ranks `n/2 -+ 0.98 sqrt(n)` of the
/// sign test. With fewer than six samples the interval is the range.
///
/// Panics on an empty slice.
pub fn median_interval(sorted: &[f64]) -> (f64, f64, f64) {
    let n = sorted.len();
    let median = quantile(sorted, 0.5);
    if n < 6 {
        return (median, sorted[0], sorted[n - 1]);
    }
    let reach = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - reach).floor().max(0.0) as usize;
    let high = ((n as f64 / 2.0 + reach).ceil() as usize).min(n - 1);
    (median, sorted[low], sorted[high])
}

/// How long one iteration took: never a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Median over the samples, in nanoseconds an iteration.
    pub median_ns: f64,
    /// 95 % confidence interval of the median, in nanoseconds.
    pub ci95_ns: (f64, f64),
    /// Tenth percentile, in nanoseconds.
    pub p10_ns: f64,
    /// Ninetieth percentile, in nanoseconds.
    pub p90_ns: f64,
    /// Ninety-ninth percentile, in nanoseconds.
    pub p99_ns: f64,
    /// Fastest sample, in nanoseconds.
    pub min_ns: f64,
    /// Slowest sample, in nanoseconds.
    pub max_ns: f64,
    /// Number of samples.
    pub samples: u32,
    /// Iterations in one sample.
    pub iterations: u32,
    /// Whether the machine was too restless for the protocol's limits.
    pub noisy: bool,
}

impl Measurement {
    /// Summarises samples given in nanoseconds an iteration; `None` when there are none.
    pub fn of(samples: &[f64], iterations: u32, noisy: bool) -> Option<Measurement> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
        let (median_ns, low, high) = median_interval(&sorted);
        Some(Measurement {
            median_ns,
            ci95_ns: (low, high),
            p10_ns: quantile(&sorted, 0.10),
            p90_ns: quantile(&sorted, 0.90),
            p99_ns: quantile(&sorted, 0.99),
            min_ns,
            max_ns,
            samples: sorted.len() as u32,
            iterations,
            noisy,
        })
    }
}

/// Time of one thing over that of another, from pairs taken next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the geometric means of all two pairs' ratios.
    pub median: f64,
    /// 95 % confidence interval.
    pub ci95: (f64, f64),
    /// Number of pairs.
    pub pairs: u32,
}

impl Ratio {
    /// Summarises ratios of pairs; `None` when there are none.
    ///
    /// Where the noise of both sides is alike, logarithms of ratios lie symmetrically about that of the
    /// true one. Their estimate is then that of Hodges and Lehmann (*Estimates of location based on rank
    /// tests*, 1963), with the interval of Wilcoxon's signed ranks: of normal noise it needs two thirds of
    /// the pairs that the plain median needs. With fewer than six pairs the interval is the range.
    pub fn of(ratios: &[f64]) -> Option<Ratio> {
        let n = ratios.len();
        if n == 0 {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
        let mut means: Vec<f64> = Vec::with_capacity(n * (n + 1) / 2);
        for (i, a) in logs.iter().enumerate() {
            means.extend(logs[..=i].iter().map(|b| (a + b) / 2.0));
        }
        let (last, middle) = (means.len() - 1, means.len() as f64 / 2.0);
        let reach = match n {
            0..6 => middle,
            _ => 1.96 * ((n * (n + 1) * (2 * n + 1)) as f64 / 24.0).sqrt(),
        };
        let mut at = |rank: usize| means.select_nth_unstable_by(rank, f64::total_cmp).1.exp();
        let low = at((middle - reach).floor().max(0.0) as usize);
        let high = at(((middle + reach).ceil() as usize).min(last));
        let median = (at(last / 2) * at(last.div_ceil(2))).sqrt();
        Some(Ratio { median, ci95: (low, high), pairs: n as u32 })
    }

    /// Whether the first is faster than the second by more than the interval.
    pub fn is_faster(&self) -> bool {
        self.ci95.1 < 1.0
    }

    /// Whether the first is slower than the second by more than the interval.
    pub fn is_slower(&self) -> bool {
        self.ci95.0 > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cover_the_median_as_often_as_they_say() {
        let mut rng = bricolage_tensor::Rng::new(1);
        let covered = (0..2000)
            .filter(|_| {
                let mut samples: Vec<f64> =
                    (0..21).map(|_| (rng.below(1 << 20) as f64 / 1e5).exp()).collect();
                samples.sort_by(f64::total_cmp);
                let truth = ((1u64 << 19) as f64 / 1e5).exp();
                let (_, low, high) = median_interval(&samples);
                low <= truth && truth <= high
            })
            .count();
        assert!(covered >= 1880, "covered {covered} of 2000");
    }

    /// Pairs of equal things under noise with a heavy tail, half of it common to a pair.
    fn equal_pairs(rng: &mut bricolage_tensor::Rng, pairs: usize) -> Vec<f64> {
        let burst = |rng: &mut bricolage_tensor::Rng| (0.02 * rng.normal()).exp().max(1.0).powi(4);
        let one = |rng: &mut bricolage_tensor::Rng, common: f64| common * burst(rng);
        let all = (0..pairs).map(|_| {
            let common = burst(rng);
            one(rng, common) / one(rng, common)
        });
        all.collect()
    }

    #[test]
    fn equal_things_tie() {
        let mut rng = bricolage_tensor::Rng::new(7);
        for pairs in [9, 25, 101] {
            let ratios = (0..1000).filter_map(|_| Ratio::of(&equal_pairs(&mut rng, pairs)));
            let differ = ratios.filter(|r| r.is_faster() || r.is_slower()).count();
            assert!(differ <= 60, "{differ} of 1000 comparisons of {pairs} pairs saw a difference");
        }
    }

    #[test]
    fn a_ratio_beats_the_plain_median() {
        let mut rng = bricolage_tensor::Rng::new(3);
        let (mut ours, mut plain) = (0.0, 0.0);
        for _ in 0..200 {
            let mut ratios: Vec<f64> = (0..51).map(|_| (0.1 * rng.normal()).exp()).collect();
            let ratio = Ratio::of(&ratios).unwrap();
            ours += ratio.ci95.1 - ratio.ci95.0;
            ratios.sort_by(f64::total_cmp);
            let (_, low, high) = median_interval(&ratios);
            plain += high - low;
        }
        assert!(ours < 0.85 * plain, "{ours} against {plain}");
        let outlier: Vec<f64> = [1.0; 20].into_iter().chain([9.0]).collect();
        assert!((Ratio::of(&outlier).unwrap().median - 1.0).abs() < 1e-9);
    }

    #[test]
    fn summaries_are_ordered() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let m = Measurement::of(&samples, 1, false).unwrap();
        assert_eq!((m.min_ns, m.median_ns, m.max_ns), (1.0, 50.5, 100.0));
        assert!(m.p10_ns < m.ci95_ns.0 && m.ci95_ns.0 < m.median_ns && m.median_ns < m.ci95_ns.1);
        assert!(Measurement::of(&[], 1, false).is_none());
        let ratio = Ratio::of(&[0.9; 9]).unwrap();
        assert!(ratio.is_faster() && !ratio.is_slower());
    }
}
