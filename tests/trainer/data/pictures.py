"""Small photos and clips for tests, drawn: each class has a colour and a pattern that a model can learn."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

COLOURS = ((200, 60, 60), (60, 200, 60), (60, 60, 200), (190, 190, 50))


def picture(label: int, seed: int, height: int = 40, width: int = 56) -> NDArray[np.uint8]:
    """Return uint8 RGB [height, width, 3]: the class's colour with a block of noise somewhere."""
    rng = np.random.default_rng([label, seed])
    pixels = np.full((height, width, 3), COLOURS[label % len(COLOURS)], np.uint8)
    top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
    pixels[top : top + height // 2, left : left + width // 2] = rng.integers(
        0, 255, (height // 2, width // 2, 3), np.uint8
    )
    return pixels


def write_photos(folder: Path, classes: int = 3, each: int = 10, first_seed: int = 0, suffix: str = ".jpg") -> Path:
    """Write `each` pictures of different sizes for every class into folder/class_N/."""
    for label in range(classes):
        class_folder = folder / f"class_{label}"
        class_folder.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            pixels = picture(label, first_seed + number, 40 + 4 * number, 56 + 2 * number)
            path = class_folder / f"{number:03d}{suffix}"
            if suffix == ".png":
                cv2.imwrite(str(path), pixels[..., ::-1])
            else:
                path.write_bytes(simplejpeg.encode_jpeg(pixels, quality=92))
    return folder


def write_clip(path: Path, label: int, seed: int, frames: int = 20, fourcc: str = "MJPG") -> Path:
    """Write a clip in which a block moves: to the right, down, to the left or up, by class."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([label, seed])
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*fourcc), 25, (64, 48))
    block = rng.integers(0, 255, (16, 16, 3), np.uint8)
    step_x, step_y = ((1, 0), (0, 1), (-1, 0), (0, -1))[label % 4]
    for number in range(frames):
        pixels = np.full((48, 64, 3), 90, np.uint8)
        x, y = (24 + step_x * number) % 48, (16 + step_y * number) % 32
        pixels[y : y + 16, x : x + 16] = block
        writer.write(pixels)
    writer.release()
    return path


def write_clips(folder: Path, classes: int = 2, each: int = 5, suffix: str = ".avi") -> Path:
    """Write `each` clips of every class; as UCF101 does, two of each film."""
    for label in range(classes):
        for number in range(each):
            name = f"v_Move{label}_g{number // 2 + 1:02d}_c{number % 2 + 1:02d}{suffix}"
            write_clip(folder / f"move_{label}" / name, label, number, fourcc="MJPG" if suffix == ".avi" else "mp4v")
    return folder
