"""Record sets: ArrayRecord shards of unmasked examples with a manifest and the tokenizer.

A record set is a directory:

    manifest.json            what the records are; see Manifest
    data_report.json         what became of the text
    tokenizer.json, vocab.txt
    pairs-00000-of-00008.array_record ...

A record is an unmasked example, little-endian: a byte of flags, a zero byte, the length of the
first segment as uint16, then the ids of both segments without [CLS] and the [SEP] behind either, as
uint16 where the vocabulary has at most 65,536 tokens and as uint32 otherwise (the manifest says
which). The second segment runs to the end of the record. Flags: bit 0 is the label of the pair (the
second segment is from another document, or the two are swapped); bit 1 says that there is one
segment only.
"""
