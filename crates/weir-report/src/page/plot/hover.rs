//! Values shown on hover. Each position of the horizontal axis has an invisible strip with a text that CSS shows
//! while the pointer is over it.

use super::{ABOVE, Axis, BELOW, H, LEFT, Line, RIGHT, W, x_of};
use std::fmt::Write;

/// Most strips of a plot, each about three units wide. More would be too narrow to hit and make the page large.
const STRIPS_MOST: usize = 120;

pub(super) fn strips(x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut places: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|(at, _)| *at)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let shown: Vec<f64> = places.iter().copied().step_by(places.len().div_ceil(STRIPS_MOST).max(1)).collect();
    let mut out = String::new();
    for (i, at) in shown.iter().enumerate() {
        let here = x_of(x, *at);
        let before = i.checked_sub(1).and_then(|i| shown.get(i)).map_or(LEFT, |p| x_of(x, *p).midpoint(here));
        let after = shown.get(i + 1).map_or(W - RIGHT, |p| x_of(x, *p).midpoint(here));
        let (width, height) = ((after - before).max(1.0), H - ABOVE - BELOW);
        let (text_x, anchor) = if here < W / 2.0 { (here + 6.0, "start") } else { (here - 6.0, "end") };
        let _ = write!(
            out,
            "<g class=\"hit\"><rect x=\"{before:.1}\" y=\"{ABOVE}\" width=\"{width:.1}\" height=\"{height}\"/>\
             <text text-anchor=\"{anchor}\" y=\"{ABOVE}\"><tspan x=\"{text_x:.1}\" dy=\"12\">{}</tspan>",
            (x.name)(*at)
        );
        for line in lines {
            // If there are two values at one position, as for a repeated rate, the later counts.
            let value = line.points.iter().rev().find(|(place, _)| place == at).and_then(|(_, value)| *value);
            if let Some(value) = value {
                let _ = write!(
                    out,
                    "<tspan x=\"{text_x:.1}\" dy=\"13\">{}: {}</tspan>",
                    line.name,
                    (y.name)(value)
                );
            }
        }
        out += "</text></g>";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_shows_the_values_of_all_lines() {
        let name = |n: f64| format!("<{n}>");
        let (x, y) = (Axis::linear(10.0, name), Axis::linear(10.0, name));
        let line = |name: &str, points| Line { name: name.to_owned(), points };
        let lines = [
            line("a", vec![(1.0, Some(2.0)), (2.0, None)]),
            line("b", vec![(1.0, Some(3.0)), (2.0, Some(4.0))]),
        ];
        let svg = strips(&x, &y, &lines);
        let texts: Vec<&str> = svg.split("<g ").skip(1).collect();
        assert_eq!(texts.len(), 2);
        assert!(
            texts[0].contains("><1></tspan>")
                && texts[0].contains(">a: <2><")
                && texts[0].contains(">b: <3><")
        );
        assert!(!texts[1].contains(">a: ") && texts[1].contains(">b: <4><"), "{svg}");
        assert_eq!(strips(&x, &y, &[]), "");
    }

    #[test]
    fn many_places_share_strips() {
        let points = (0..3600).map(|i| (f64::from(i), Some(1.0))).collect();
        let axis = || Axis::linear(3600.0, |n| n.to_string());
        let svg = strips(&axis(), &axis(), &[Line { name: "a".to_owned(), points }]);
        assert_eq!(svg.matches("<g ").count(), STRIPS_MOST);
    }
}
