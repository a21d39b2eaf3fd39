# SPDX-License-Identifier: Apache-2.0
"""A strict reader of OpenMetrics 1.0 text: what the standard forbids is an error, and so is what it
only advises against, where we have no reason to do it. parse(text) gives {family: Family}; a Family
has type, unit, help and samples {(name, labels): value}."""
import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
SUFFIXES = {"counter": ("_total", "_created"), "gauge": ("",),
            "histogram": ("_bucket", "_sum", "_count", "_created"),
            "summary": ("", "_sum", "_count", "_created"),
            "info": ("_info",), "stateset": ("",),
            "gaugehistogram": ("_bucket", "_gsum", "_gcount"), "unknown": ("",)}


class Wrong(ValueError):
    """Not OpenMetrics."""


class Family:
    def __init__(self, name):
        self.name, self.type, self.unit, self.help, self.samples = name, None, None, None, {}

    def value(self, suffix="", **labels):
        return self.samples[(self.name + suffix, tuple(sorted(labels.items())))]

    def sum(self, suffix="", **labels):
        """Over all samples that have these labels."""
        want = set(labels.items())
        return sum(value for (name, has), value in self.samples.items() if name == self.name +
                   suffix and want <= set(has))


def require(condition, line, why):
    if not condition:
        raise Wrong(f"{why}: {line!r}")


def unescape(text, line):
    out, rest = [], iter(text)
    for character in rest:
        if character == "\\":
            code = next(rest, "")
            require(code in ("\\", '"', "n") and code, line, "an escape that is none")
            character = "\n" if code == "n" else code
        else:
            require(character not in '"\n', line, "a quote that is not escaped")
        out.append(character)
    return "".join(out)


def read_labels(text, line):
    labels, at = {}, 0
    while at < len(text):
        match = re.compile(rf'({LABEL})="((?:[^"\\\n]|\\.)*)"').match(text, at)
        require(match, line, "labels that make no sense")
        require(match[1] not in labels, line, "a label twice")
        require(not match[1].startswith("__"), line, "a reserved label")
        labels[match[1]] = unescape(match[2], line)
        at = match.end()
        if at < len(text):
            require(text[at] == "," and at + 1 < len(text), line, "labels that do not go on")
            at += 1
    return labels


def read_value(text, line):
    if text in ("+Inf", "-Inf", "NaN"):
        return {"+Inf": math.inf, "-Inf": -math.inf, "NaN": math.nan}[text]
    require(NUMBER.fullmatch(text), line, "a value that is no number")
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def read_sample(family, line):
    match = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? (\S+)(?: (\S+))?", line)
    require(match, line, "a line that is no sample")
    name, labels = match[1], read_labels(match[2] or "", line)
    require(family and family.type, line, "a sample without # TYPE before it")
    require(any(name == family.name + suffix for suffix in SUFFIXES[family.type]), line,
            f"no sample of the {family.type} {family.name}")
    value = read_value(match[3], line)
    if match[4]:
        read_value(match[4], line)
    if family.type in ("counter", "histogram"):
        require(not math.isnan(value) and value >= 0, line, "a counter below 0")
    require(("le" in labels) == name.endswith("_bucket"), line,
            "le on what is no bucket, or none on one")
    key = (name, tuple(sorted(labels.items())))
    require(key not in family.samples, line, "a series twice")
    family.samples[key] = value


def read_metadata(families, family, line):
    match = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({NAME}) (.*)", line)
    require(match, line, "a comment that is none of TYPE, UNIT, HELP, EOF")
    what, name, text = match.groups()
    if family is None or family.name != name:
        require(name not in families, line, "a family that is not in one piece")
        family = families[name] = Family(name)
    require(not family.samples, line, "metadata after samples")
    require(getattr(family, what.lower()) is None, line, "metadata twice")
    if what == "TYPE":
        require(text in SUFFIXES, line, "no such type")
        require(text != "counter" or not name.endswith("_total"), line,
                "a counter's family has no _total")
    elif what == "UNIT":
        require(re.fullmatch(r"[a-zA-Z0-9_:]+", text) and name.endswith("_" + text), line,
                "a unit that is not the name's end")
    else:
        text = unescape(text, line)
        require(text, line, "an empty help")
    setattr(family, what.lower(), text)
    return family


def check_histogram(family):
    series = {}
    for (name, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            le = dict(labels)["le"]
            series[rest]["buckets"].append((read_value(le, le), value))
        else:
            series[rest][name[len(family.name):]] = value
    for one in series.values():
        bounds = [bound for bound, _ in one["buckets"]]
        counts = [value for _, value in one["buckets"]]
        require(bounds == sorted(set(bounds)) and bounds and bounds[-1] == math.inf, family.name,
                "buckets that are not in order up to +Inf")
        require(counts == sorted(counts), family.name, "buckets that do not add up")
        require(one.get("_count") == counts[-1] and "_sum" in one, family.name,
                "_count is not the last bucket, or there is no _sum")


def check_clashes(families):
    """No sample's name may belong to two families."""
    names = {}
    for family in families.values():
        for suffix in {"", *SUFFIXES[family.type]}:
            name = family.name + suffix
            require(names.setdefault(name, family.name) == family.name, name,
                    "a name of two families")


def parse(text):
    if isinstance(text, bytes):
        text = text.decode("utf-8", "strict")
    require(text.endswith("\n"), text[-40:], "the last line does not end")
    lines = text[:-1].split("\n")
    require(lines[-1] == "# EOF", lines[-1], "no # EOF at the end")
    families, family = {}, None
    for line in lines[:-1]:
        require(line and line != "# EOF" and "\r" not in line, line,
                "an empty line, or # EOF in the middle")
        if line.startswith("#"):
            family = read_metadata(families, family, line)
        else:
            read_sample(family, line)
    for family in families.values():
        require(family.type, family.name, "a family without # TYPE")
        if family.type == "histogram":
            check_histogram(family)
    check_clashes(families)
    return families
