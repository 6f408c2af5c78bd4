//! Columns of text, aligned and cut to the terminal.

use super::spans::{Spans, Style};
use super::width;
use pulldown_cmark::Alignment;

const GAP: usize = 2;

/// A Markdown table: the first row is the head.
pub fn spans(rows: &[Vec<Spans>], align: &[Alignment], room: usize, colour: bool) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..count)
        .map(|i| {
            rows.iter()
                .filter_map(|r| r.get(i))
                .map(Spans::width)
                .max()
                .unwrap_or(0)
        })
        .collect();
    shrink(&mut widths, room);
    let mut out = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        out.extend(row_lines(row, &widths, align, colour));
        if number == 0 {
            let rule: Vec<_> = widths.iter().map(|w| "─".repeat(*w)).collect();
            out.push(Style::dim().paint(&rule.join("  "), colour));
        }
    }
    out
}

fn row_lines(row: &[Spans], widths: &[usize], align: &[Alignment], colour: bool) -> Vec<String> {
    let cells: Vec<Vec<(usize, String)>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| {
            let plain = cell.wrap(*width, false);
            let painted = cell.wrap(*width, colour);
            plain
                .iter()
                .map(|line| width::of(line))
                .zip(painted)
                .collect()
        })
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|at| {
            let mut line = String::new();
            for (i, width) in widths.iter().enumerate() {
                let (used, text) = cells
                    .get(i)
                    .and_then(|c| c.get(at))
                    .cloned()
                    .unwrap_or_default();
                let fill = " ".repeat(width.saturating_sub(used));
                let right = align.get(i) == Some(&Alignment::Right);
                let cell = if right { fill + &text } else { text + &fill };
                line.push_str(&cell);
                line.push_str("  ");
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// Takes from the widest column until all fit, but leaves each readable.
fn shrink(widths: &mut [usize], room: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 8 => *widest -= 1,
            _ => break,
        }
    }
}

/// Rows of plain cells under a head; the last column gets what is left of the line, when a width is given.
pub fn plain(head: &[&str], rows: &[Vec<String>], room: Option<usize>, colour: bool) -> String {
    let mut widths: Vec<usize> = head.iter().map(|h| width::of(h)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(width::of(cell));
        }
    }
    let mut out = String::new();
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    for (number, row) in std::iter::once(&head).chain(rows).enumerate() {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            if i + 1 == row.len() {
                let left = room.map(|room| room.saturating_sub(width::of(&line)).max(10));
                line.push_str(&left.map_or_else(|| cell.clone(), |left| width::cut(cell, left)));
            } else {
                line.push_str(&width::fit(cell, widths[i]));
                line.push_str("  ");
            }
        }
        let line = line.trim_end();
        let style = if number == 0 {
            Style::dim()
        } else {
            Style::default()
        };
        out.push_str(&style.paint(line, colour));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_cut_to_the_line() {
        let rows = vec![
            vec!["a".to_owned(), "a long last cell that goes on".to_owned()],
            vec!["bbb".to_owned(), "x".to_owned()],
        ];
        assert_eq!(
            plain(&["ID", "LINE"], &rows, Some(20), false),
            "ID   LINE\na    a long last ce…\nbbb  x\n"
        );
    }
}
