"""Record sets to and from the pre-masked TFRecords of Google's and NVIDIA's BERT code.

Each record is a tf.train.Example of one row of T tokens with P slots for predictions:

    input_ids             int64 [T]  tokens with masks, [PAD] at the end
    input_mask            int64 [T]  1 for a token, 0 for padding
    segment_ids           int64 [T]  1 for the second segment and its [SEP]
    masked_lm_positions   int64 [P]  of the predictions, 0 in unused slots
    masked_lm_ids         int64 [P]  the tokens that stood there, 0 in unused slots
    masked_lm_weights     float [P]  1 for a prediction, 0 for an unused slot
    next_sentence_labels  int64 [1]  1 if the second segment is from another document

The schema has no place for "no second segment": rows of one segment have segment_ids 0 and label 0.

References:
    google-research/bert, create_pretraining_data.py, write_instance_to_example_files; the same in
    NVIDIA's DeepLearningExamples and, with two other names (option use_v2_feature_names), in the
    TensorFlow Model Garden.
"""

from bert_lamb.data.exchange.export import export_tfrecords
from bert_lamb.data.exchange.intake import import_tfrecords

__all__ = ["export_tfrecords", "import_tfrecords"]
