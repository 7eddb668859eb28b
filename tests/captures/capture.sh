#!/bin/bash
# Makes the pictures of docs/images from real runs.
#   tests/captures/capture.sh live GRPO          live.svg: trains for STEPS steps (40) in a temporary folder
#   tests/captures/capture.sh report GRPO RUN    report-1400.png: RUN is the folder of a finished run of configs/molecules/grpo.toml
# GRPO is the program. Needs python3 and tmux, or python3 with Pillow and chromium. Speeds are in the picture, so leave the
# machine alone meanwhile.
set -euo pipefail
what=$1 grpo=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
images=$root/docs/images
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

live() {
  ln -s "$root/configs" "$root/data" "$work"
  tmux -L captures new-session -d -s live -x 120 -y 40 \
    "cd '$work' && '$grpo' train configs/molecules/grpo.toml --set eval.samples=0"
  until [ "$(wc -l 2> /dev/null < "$work/runs/molecules/metrics.jsonl" || echo 0)" -ge "${STEPS:-40}" ]; do sleep 0.2; done
  sleep 0.5 # the screen follows the file
  tmux -L captures capture-pane -e -p -t live | python3 "$here/terminal_to_svg.py" 120 40 > "$images/live.svg"
  tmux -L captures kill-server
}

report() { # RUN
  "$grpo" report "$1" -o "$work/report.html"
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,1500 \
    --screenshot="$work/report.png" "file://$work/report.html" > /dev/null 2>&1
  # Few colours are enough for text and lines, and make small files.
  python3 -c "import sys; from PIL import Image; Image.open(sys.argv[1]).convert('RGB').quantize(200).save(sys.argv[2], optimize=True)" \
    "$work/report.png" "$images/report-1400.png"
}

"$what" "${@:3}"
ls -l "$images"
