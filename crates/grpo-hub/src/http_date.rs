//! Dates in headers.

/// Returns the seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, the form that
/// servers send ([RFC 9110, section 5.6.7](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7)).
pub(crate) fn seconds(date: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let [_, day, month, year, time, "GMT"] = date.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = MONTHS.find(month).filter(|at| month.len() == 3 && at % 3 == 0)? / 3;
    let (day, year): (u8, u16) = (day.parse().ok()?, year.parse().ok()?);
    let mut seconds = 0;
    let mut units = 0;
    for unit in time.split(':') {
        seconds = 60 * seconds + i64::from(unit.parse::<u8>().ok()?);
        units += 1;
    }
    // Years begin in March, so that the day after February is the last one of a leap year.
    let month = i64::try_from((month + 10) % 12).ok()?;
    let year = i64::from(year) - i64::from(month >= 10);
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    const DAYS_TO_1970: i64 = 719_469;
    (units == 3).then_some(86_400 * (days + i64::from(day) - DAYS_TO_1970) + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_servers() {
        // `date -d '…' +%s`
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        assert_eq!(seconds("Fri, 01 Mar 2024 00:00:00 GMT"), Some(1_709_251_200));
        assert_eq!(seconds("Sun, 29 Nov 2026 19:16:41 GMT"), Some(1_795_979_801));
        for text in ["", "120", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 06 anF 1994 08:49:37 GMT"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
