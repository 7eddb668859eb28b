#!/bin/bash
# Makes the pictures of docs/images from a real run: tests/captures/capture.sh GRPO RUN
# GRPO is the program, RUN the folder of a finished run of configs/molecules/grpo.toml.
# Needs python3 with Pillow, tmux and chromium. The captures of the live screen train for STEPS steps (40) in a temporary folder.
set -euo pipefail
grpo=$1 run=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
images=$root/docs/images
work=$(mktemp -d)
mkdir -p "$images"
ln -s "$root/configs" "$root/data" "$work"

"$grpo" report "$run" -o "$work/report.html"
python3 "$here/molecules_to_svg.py" "$work/report.html" > "$images/molecules.svg"
page() { # WIDTH HEIGHT NAME [OPTION]
  chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars ${4:-} \
    --window-size="$1,$2" --screenshot="$work/$3" "file://$work/report.html" > /dev/null 2>&1
  # Few colours are enough for text and lines, and make small files.
  python3 -c "import sys; from PIL import Image; Image.open(sys.argv[1]).convert('RGB').quantize(200).save(sys.argv[2], optimize=True)" \
    "$work/$3" "$images/$3"
}
page 500 1900 report-500.png
page 1400 1500 report-1400.png
page 1400 1500 report-dark.png --blink-settings=preferredColorScheme=0

tmux -L captures new-session -d -s live -x 80 -y 24 \
  "cd '$work' && '$grpo' train configs/molecules/grpo.toml --set eval.samples=0"
until [ "$(wc -l < "$work/runs/molecules/metrics.jsonl" 2> /dev/null || echo 0)" -ge "${STEPS:-40}" ]; do sleep 1; done
for size in 80x24 120x40; do
  tmux -L captures resize-window -t live -x "${size%x*}" -y "${size#*x}"
  sleep 2
  tmux -L captures capture-pane -e -p -t live | python3 "$here/terminal_to_svg.py" "${size%x*}" "${size#*x}" > "$images/live-$size.svg"
done
cp "$images/live-120x40.svg" "$images/live.svg"
tmux -L captures kill-server
ls -l "$images"
