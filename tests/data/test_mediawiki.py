import bz2
import html
import os
import subprocess
import sys
import time

import pytest

from bert_lamb.data.corpus import ReadStats, mediawiki, open_sources
from bert_lamb.data.corpus.wikitext import prose
from bert_lamb.data.errors import DataError

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
      <namespace key="104" case="first-letter">To</namespace>
    </namespaces>
  </siteinfo>
"""


def page(title, text, *, id=1, ns=0, redirect="", model="wikitext"):
    mark = f'<redirect title="{redirect}" />' if redirect else ""
    return f"""  <page>
    <title>{html.escape(title)}</title>
    <ns>{ns}</ns>
    <id>{id}</id>
    {mark}
    <revision>
      <id>99{id}</id>
      <contributor><username>U</username><id>7</id></contributor>
      <model>{model}</model>
      <text bytes="{len(text)}" xml:space="preserve">{html.escape(text)}</text>
    </revision>
  </page>
"""


def dump(*pages):
    return HEAD + "".join(pages) + "</mediawiki>\n"


def read(file, **options):
    stats = ReadStats()
    documents = [d for s in open_sources([str(file)], **options) for d in s.read(stats)]
    return documents, stats


ADA = """{{Infobox person
| name = Ada
| born = {{birth date|1815|12|10}}
|}}
'''Ada Lovelace''' ({{IPA|x}}; 10 December 1815, 1852) was an [[England|English]] [[writer]].<ref
name="a">{{cite book|title=A}}</ref> Today is {{CURRENTDAY}} {{CURRENTMONTHNAME}}.

== Life ==
[[Datei:Ada.jpg|thumb|A [[portrait]] {{by|x}}]]
{| class="wikitable"
! Year !! Event
|-
| 1815 || [[Birth]]
|}
* First ''item''
* Second item<ref>x</ref>

[[Kategorie:People]]
"""


def test_p29_dump_of_three_pages_gives_the_known_text(tmp_path):
    (tmp_path / "wiki.xml").write_text(
        dump(
            page("Countess", "#REDIRECT [[Ada Lovelace]]", id=1, redirect="Ada Lovelace"),
            page("Ada Lovelace", ADA, id=2),
            page("Template:By", "{{{1}}}", id=3, ns=10),
        )
    )
    documents, stats = read(tmp_path / "wiki.xml")
    assert [(d.id, d.title) for d in documents] == [("2", "Ada Lovelace")]
    assert documents[0].text == (
        "Ada Lovelace (10 December 1815, 1852) was an English writer. Today is.\n"
        "First item\n"
        "Second item"
    )
    assert stats.skipped == {"redirect": 1, "not an article": 1}
    assert stats.files == 1
    assert stats.bytes == (tmp_path / "wiki.xml").stat().st_size


def test_p30_text_does_not_depend_on_the_day(tmp_path):
    text = "Now {{CURRENTYEAR}}-{{CURRENTDAY}} {{#time:Y-m-d}} {{LOCALTIME}} it is."
    (tmp_path / "wiki.xml").write_text(dump(page("Day", text)))
    # The clock of the second run is set in the process, as far as Python can reach it.
    code = """if True:
        import sys, time, datetime
        if sys.argv[2] != "0":
            time.time = lambda: float(sys.argv[2])
            day = time.struct_time((1999, 1, 2, 3, 4, 5, 5, 2, 0))
            time.localtime = time.gmtime = lambda *_: day
            time.strftime = lambda *_: "1999-01-02"
            class Fake(datetime.datetime):
                now = today = utcnow = classmethod(lambda cls, *_: cls(1999, 1, 2))
            datetime.datetime = Fake
        from bert_lamb.data.corpus import ReadStats, open_sources
        for document in open_sources([sys.argv[1]])[0].read(ReadStats()):
            print(document)
    """
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "wiki.xml"), clock],
            check=True, capture_output=True, env={**os.environ, "TZ": zone},
        ).stdout
        for clock, zone in (("0", "UTC"), ("915246245", "Asia/Tokyo"))
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert b"Now - it is." in runs[0]


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("a {{t|{{u}}|[[v]]}} b", "a b"),
        ("a {{{1|default {{x}}}}} b", "a b"),
        ("a {{{{{1}}}}} b {{{{x}}}} c", "a b c"),
        ("a {{never closed [[link|shown]] b", "a never closed shown b"),
        ("a }} b", "a b"),
        ("{{x\n|a=b\n|}}after", "after"),
        ("[[A]] [[B|c]]s [[D (e)|]] [[F#g|h]] [[:Category:I|j]] [[:fr:K]]", "A cs D (e) h j fr:K"),
        ("[[File:a.jpg|thumb|x [[y]] z [http://q r]]] after", "after"),
        ("[[image:a.jpg]][[MEDIA:b]][[category: c]][[de:D]][[zh-min-nan:E]] f", "f"),
        ("[[wikt:word|word]] [[Star Trek: Picard]] [[Re:Zero]]", "word Star Trek: Picard Re:Zero"),
        ("[[never closed a\n\n[[b|c]]", "never closed a\nc"),
        ("see [https://a.b/c?d the site], [http://x] [//y z] [mailto:a@b m]", "see the site, z m"),
        ("list[0] and [sic] stay", "list[0] and [sic] stay"),
        ("''a'' '''b''' '''''c''''' ''''d'''' it's", "a b c 'd' it's"),
        ("= A =\n== B ==\ntext\n=== C === <!-- d -->", "text"),
        ("a = b and c == d", "a = b and c == d"),
        ("* a\n** b\n# c\n:d\n; e : f\n----\ng", "a\nb\nc\nd\ne : f\ng"),
        ("a<br>b<br/>c<p>d</p>e", "a\nb\nc\nd\ne"),
        ("H<sub>2</sub>O, x<sup>2</sup> <span style='a'>in</span>", "H2O, x2 in"),
        ("a <ref>{{x}}</ref>, <ref name=b />. c<references/> d", "a,. c d"),
        ("a <ref>never closed b", "a never closed b"),
        ("a <math>\\frac{{1}}{2}</math> b <gallery>\nx.jpg|y\n</gallery> c", "a b c"),
        ("<nowiki>[[a]] {{b}} ''c'' &amp; &lt;</nowiki>", "[[a]] {{b}} ''c'' & <"),
        ("a<!-- {{ -->b<!-- never closed", "ab"),
        ("a&nbsp;b &amp; &lt;c&gt; &#8364; &bogus;", "a b & <c> € &bogus;"),
        ("1 < 2 and a<b and x <y> z", "1 < 2 and a<b and x <y> z"),
        ("__TOC__\n__NOEDITSECTION__a", "a"),
        ("{|\n| a\n{|\n| b\n|}\n| c\n|}\nd", "d"),
        (":{| class=x\n| a\n|}\nb", "b"),
        ("{|\n| never closed\n\nb", "b"),
        ("<table><tr><td>a<table><tr><td>b</table></table>c", "c"),
        ("( {{a}} ) b ({{c}}, d; {{e}}) f, {{g}}, h {{j}}, k [{{i}}]", "b (d) f, h, k"),
        ("(a {{b}} {{c}}. ({{d}} {{e}}, born f) {{g}}{{h}}i{{j}} k{{l}}m", "(a. (born f) i km"),
        ("{{a}}\n***\n.\n| x", ""),
        ("a\r\nb", "a\nb"),
    ],
)  # fmt: skip
def test_wikitext_gives_its_prose(wikitext, text):
    assert prose(wikitext) == text


def test_prose_agrees_with_a_full_parser_on_ordinary_markup():
    parser = pytest.importorskip("mwparserfromhell")
    plain = (
        "'''Berlin''' is the [[capital city|capital]] of [[Germany]].{{citation needed}} It has "
        "''many'' [[museum]]s<!-- how many? --> &amp; [https://example.org parks].\n"
        "The {{lang|de|Spree}} flows&nbsp;through <b>it</b>.\n\n"
        "Its '''''old''''' town, H<sub>2</sub>O {{convert|5|km|{{x}}}} and [[Unter den Linden]]."
    )
    expected = parser.parse(plain).strip_code()
    assert prose(plain).split() == expected.split()


# Each of these takes a parser with backtracking quadratic time or more: minutes for a page.
@pytest.mark.parametrize(
    "piece",
    ["{{a|", "{{{a|", "[[a|", "<ref>", "<ref name='", "<b>", "{|\n", "\n{|\n|a", "[http://a ",
     "<!--", "'''a''b ", "{{a|<ref>[[", "<table>", "\n==", "( {{a}}, ", "{{a}} ", "<", "&"],
)  # fmt: skip
def test_time_is_linear_for_markup_made_to_be_slow(piece):
    closers = "".join({"{": "}", "[": "]", "<": ">"}.get(c, "") for c in piece)

    def seconds(size):
        text = piece * (size // len(piece)) + closers * (size // len(piece))
        start = time.process_time()
        prose(text)
        return time.process_time() - start

    # Quadratic time would be 64 times as long (and minutes in all); linear is 8.
    short = max(min(seconds(25_000) for _ in range(3)), 0.002)
    assert min(seconds(200_000) for _ in range(2)) < 30 * short


def test_long_pages_are_skipped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(mediawiki, "_MAX_PAGE_CHARS", 1000)
    (tmp_path / "a.xml").write_text(dump(page("A", "word " * 201), page("B", "word")))
    documents, stats = read(tmp_path / "a.xml")
    assert [d.title for d in documents] == ["B"]
    assert stats.skipped == {"page over 16 MiB": 1}


def test_pages_without_prose_are_counted_by_cause(tmp_path):
    (tmp_path / "a.xml").write_text(
        dump(
            page("A", "{|\n| only a table\n|}"),
            page("B", ""),
            page("C", "return {}", model="Scribunto"),
            page("D", " #redirect [[E]]"),
            page("E", "Talk", ns=1),
            "  <page><title>F</title><ns>0</ns><id>6</id></page>\n",
            page("To: G", "[[to:G]] is a namespace here"),
        )
    )
    documents, stats = read(tmp_path / "a.xml")
    assert [d.text for d in documents] == ["to:G is a namespace here"]
    assert stats.skipped == {
        "no text": 3, "not wikitext": 1, "redirect": 1, "not an article": 1
    }  # fmt: skip


def test_the_last_of_several_revisions_is_taken(tmp_path):
    one = page("A", "Old.", id=5)
    both = one.replace("</revision>", "</revision><revision><id>8</id><text>New.</text></revision>")
    (tmp_path / "a.xml").write_text(dump(both))
    documents, _ = read(tmp_path / "a.xml")
    assert [(d.id, d.text) for d in documents] == [("5", "New.")]


def test_multistream_dump_parts_are_known_by_their_names(tmp_path):
    parts = [HEAD, page("A", "One."), page("B", "Two."), "</mediawiki>"]
    file = tmp_path / "dewiki-20250101-pages-articles1.xml-p1p297012.bz2"
    file.write_bytes(b"".join(bz2.compress(part.encode()) for part in parts))
    assert [d.text for d in read(file)[0]] == ["One.", "Two."]


def test_pages_in_any_number_of_blocks_are_the_same(tmp_path, monkeypatch):
    (tmp_path / "a.xml").write_text(dump(*(page(f"Ä{i}", f"Text &amp; é {i}.") for i in range(50))))
    expected = read(tmp_path / "a.xml")
    monkeypatch.setattr(mediawiki, "_BLOCK_BYTES", 7)
    again = read(tmp_path / "a.xml")
    assert again[0] == expected[0]
    assert len(again[0]) == 50
    assert again[1].sha256.hexdigest() == expected[1].sha256.hexdigest()


BOMB = """<?xml version="1.0"?><!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>
<mediawiki><page><title>&b;</title></page></mediawiki>"""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (dump(page("A", "One."))[:-14], r"line \d+, byte \d+: not well-formed XML \(no element"),
        (dump(page("A", "One."))[:400], r"line 9, byte \d+: not well-formed XML"),
        (HEAD + "<page><title>A</titel>", "line 11, byte .*mismatched tag"),
        ("", "byte 0: not well-formed XML"),
        ("<html><p>x</p></html>", "line 1, byte 0: the root element is <html>"),
        (BOMB, "a document type declaration"),
        ("<mediawiki><x>&undefined;</x></mediawiki>", "undefined entity"),
        ("<mediawiki>" + "<a>" * 99, "nested over 32 deep"),
        ('<?xml version="1.0" encoding="klingon"?><mediawiki/>', "encoding"),
        (dump() + "more", "junk after document element"),
        ("<mediawiki>\xff".encode("latin-1"), "invalid token"),
        ('<mediawiki a="' + "x" * 5_000_000, "a tag or comment over"),
        ("<mediawiki><!--" + "x" * 5_000_000, "a tag or comment over"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_other_xml_is_named_with_file_line_and_byte(tmp_path, content, problem, on_error):
    (tmp_path / "a.xml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"a\.xml, line \d+, byte \d+: .*{problem[-12:]}"):
        read(tmp_path / "a.xml", on_error=on_error)
    with pytest.raises(DataError, match=problem):
        read(tmp_path / "a.xml", on_error=on_error)


def test_memory_does_not_grow_with_the_dump(tmp_path):
    import tracemalloc

    def peak(pages):
        file = tmp_path / f"{pages}.xml"
        file.write_text(dump(*(page(f"P{i}", "Some words. " * 1000) for i in range(pages))))
        tracemalloc.start()
        count = sum(1 for _ in open_sources([str(file)])[0].read(ReadStats()))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == pages
        return size

    small, large = peak(20), peak(200)
    assert large < 1.2 * small + 500_000


EXTRACTED = """<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Tom &amp; Jerry">
Tom & Jerry

Tom &amp; Jerry is a &lt;series&gt; &eacute;.
Tom & Jerry

</doc>

<doc id="13" revid="5" url="https://en.wikipedia.org/wiki?curid=13" title="The "A" Team">
The "A" Team

</doc>
<doc id="14" url="u" title="Other">
First line.
</doc>
"""


def test_wikiextractor_files_give_their_articles(tmp_path):
    for name in ("AA/wiki_00", "AB/wiki_00"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(EXTRACTED.replace("Other", name))
    documents, stats = read(f"wikiextractor:{tmp_path}")
    tom = ("12", "Tom & Jerry", "Tom & Jerry is a <series> &eacute;.\nTom & Jerry")
    assert [(d.id, d.title, d.text) for d in documents] == [
        tom, ("14", "AA/wiki_00", "First line."), tom, ("14", "AB/wiki_00", "First line.")
    ]  # fmt: skip
    assert stats.skipped == {"no text": 2}
    assert stats.files == 2


@pytest.mark.parametrize(
    ("broken", "problem", "texts", "skipped"),
    [
        ('<doc id="1" url="" title="A">\na\n', "line 1: the file ends before", ["a"], 0),
        (
            '<doc id="1" url="" title="A">\na\n<doc id="2" url="" title="B">\nb\n</doc>',
            "line 3: <doc> inside the <doc> of line 1", ["a", "b"], 0,
        ),
        ('<doc id="1" url="" title="A">\na\n</doc>\nx\n', "line 4: expected .* got x", ["a"], 1),
        ('<doc id="1">\na\n</doc>', "line 1: expected <doc id=", [], 3),
    ],
)  # fmt: skip
def test_wikiextractor_faults_are_named_or_skipped(tmp_path, broken, problem, texts, skipped):
    (tmp_path / "wiki_00").write_text(broken)
    for policy in ("error", "replace"):
        with pytest.raises(DataError, match=rf"wiki_00, {problem}"):
            read(f"wikiextractor:{tmp_path}/wiki_00", on_error=policy)
    documents, stats = read(f"wikiextractor:{tmp_path}/wiki_00", on_error="skip")
    assert [d.text for d in documents] == texts
    assert stats.lines_skipped == skipped
    assert stats.faults
