# SPDX-License-Identifier: Apache-2.0
"""The reader of OpenMetrics itself: it takes what the standard allows and refuses
each thing that it forbids."""
import openmetrics
import pytest

GOOD = """# TYPE a_bytes gauge
# UNIT a_bytes bytes
# HELP a_bytes Bytes of \\"a\\".
a_bytes{path="/x\\\\y\\"z\\n",b=""} 12
a_bytes{path="other",b=""} -1.5e3
# TYPE n counter
# HELP n Things.
n_total 5
# TYPE h_seconds histogram
# UNIT h_seconds seconds
h_seconds_bucket{le="0.1"} 1
h_seconds_bucket{le="1.0"} 3
h_seconds_bucket{le="+Inf"} 4
h_seconds_sum 7.5
h_seconds_count 4
# TYPE empty gauge
# EOF
"""

BAD = {
    "no end": GOOD[:-len("# EOF\n")],
    "the last line does not end": GOOD[:-1],
    "something after the end": GOOD + "n_total 6\n",
    "end in the middle": GOOD.replace("# TYPE n counter", "# EOF\n# TYPE n counter"),
    "empty line": GOOD.replace("# TYPE n", "\n# TYPE n"),
    "carriage return": GOOD.replace("n_total 5", "n_total 5\r"),
    "unknown comment": GOOD.replace("# HELP n Things.", "# Things."),
    "unknown type": GOOD.replace("TYPE n counter", "TYPE n count"),
    "no type": GOOD.replace("# TYPE n counter\n", ""),
    "type twice": GOOD.replace("# TYPE n counter\n", "# TYPE n counter\n# TYPE n counter\n"),
    "help after samples": GOOD.replace("# HELP n Things.\nn_total 5\n",
                                       "n_total 5\n# HELP n Things.\n"),
    "counter without _total": GOOD.replace("n_total 5", "n 5"),
    "family of a counter with _total": GOOD.replace("TYPE n ", "TYPE n_total ").replace(
        "HELP n ", "HELP n_total ").replace("n_total 5", "n_total_total 5"),
    "gauge with a suffix": GOOD.replace('a_bytes{path="other"', 'a_bytes_total{path="other"'),
    "another family's sample": GOOD.replace("n_total 5", "m_total 5"),
    "family in two pieces": GOOD.replace("# EOF", "# HELP n Again.\n# EOF"),
    "unit not in the name": GOOD.replace("UNIT a_bytes bytes", "UNIT a_bytes seconds"),
    "negative counter": GOOD.replace("n_total 5", "n_total -5"),
    "NaN counter": GOOD.replace("n_total 5", "n_total NaN"),
    "value no number": GOOD.replace("n_total 5", "n_total 5x"),
    "hexadecimal value": GOOD.replace("n_total 5", "n_total 0x5"),
    "no value": GOOD.replace("n_total 5", "n_total"),
    "two spaces": GOOD.replace("n_total 5", "n_total  5"),
    "series twice": GOOD.replace("n_total 5", "n_total 5\nn_total 6"),
    "series twice, labels in another order": GOOD.replace('a_bytes{path="other",b=""} -1.5e3',
                                                          'a_bytes{b="",path="other"} '
                                                          '1\na_bytes{path="other",b=""} 2'),
    "label twice": GOOD.replace('b=""} 12', 'path=""} 12'),
    "label name": GOOD.replace('b=""} 12', '1b=""} 12'),
    "reserved label": GOOD.replace('b=""} 12', '__b=""} 12'),
    "label without quotes": GOOD.replace('b=""} 12', "b=x} 12"),
    "labels not closed": GOOD.replace('b=""} 12', 'b="" 12'),
    "comma at the end": GOOD.replace('b=""} 12', 'b="",} 12'),
    "quote not escaped": GOOD.replace('y\\"z', 'y"z'),
    "unknown escape": GOOD.replace("\\\\y", "\\ty"),
    "unknown escape in help": GOOD.replace("Things.", "Thi\\ngs.\\t"),
    "empty help": GOOD.replace("# HELP n Things.", "# HELP n "),
    "name": GOOD.replace("n_total 5", "n-total 5"),
    "le on a gauge": GOOD.replace('b=""} 12', 'le="1"} 12'),
    "bucket without le": GOOD.replace('h_seconds_bucket{le="0.1"} 1', "h_seconds_bucket 1"),
    "buckets not in order": GOOD.replace('le="0.1"', 'le="2.0"'),
    "buckets shrink": GOOD.replace('{le="0.1"} 1', '{le="0.1"} 4'),
    "no +Inf": GOOD.replace('h_seconds_bucket{le="+Inf"} 4\n', ""),
    "count is not the last bucket": GOOD.replace("h_seconds_count 4", "h_seconds_count 5"),
    "no sum": GOOD.replace("h_seconds_sum 7.5\n", ""),
    "names of two families": GOOD.replace("# TYPE empty gauge", "# TYPE n_total gauge"),
}


def test_reads_what_is_right():
    families = openmetrics.parse(GOOD)
    assert (families["a_bytes"].value(path='/x\\y"z\n', b="") == 12 and
            families["a_bytes"].help == 'Bytes of "a".')
    assert families["a_bytes"].sum(b="") == 12 - 1500 and families["a_bytes"].unit == "bytes"
    assert families["n"].value("_total") == 5 and families["empty"].samples == {}
    assert openmetrics.parse(GOOD.encode()).keys() == families.keys()


@pytest.mark.parametrize("name", BAD)
def test_refuses_what_is_wrong(name):
    assert BAD[name] != GOOD
    with pytest.raises(openmetrics.Wrong):
        openmetrics.parse(BAD[name])


def test_refuses_what_is_not_utf8():
    with pytest.raises(UnicodeDecodeError):
        openmetrics.parse(GOOD.encode().replace(b"other", b"\xff"))
