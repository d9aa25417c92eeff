"""Use a saved model: no torch, numpy alone.

gatewise train digits --out runs/digits
python examples/predict.py runs/digits/model.gatewise
"""

import sys

import gatewise
from gatewise.data import load_dataset


def main() -> None:
    model = gatewise.load(sys.argv[1])
    digits = load_dataset("digits")
    scores = model.predict_scores(digits.test_x[:5])
    for score, label in zip(scores, digits.test_y, strict=False):
        bars = " ".join(f"{value:4.0f}" for value in score)
        print(f"a {label} was taken for a {score.argmax()}   counts {bars}")
    right = (model.predict(digits.test_x) == digits.test_y).mean()
    print(f"{right:.1%} of {len(digits.test_y)} test samples are right")
    assert "torch" not in sys.modules


if __name__ == "__main__":
    main()
