import json, numpy as np, lzma
from pathlib import Path
SETS="medquad squad scifact cranfield cosqa vaswani trec-dl21 semeval-cqa".split()
rows=[json.loads(l) for l in open('x/out/builds.jsonl')]
for split in ('dev','test'):
  for arm in ('l20','j20','l100','j100'):
    cells=[];means=[];ses=[]
    for s in SETS:
        rr=[r for r in rows if r['arm']==arm and r['set']==s and (r['split']=='test')==(split=='test')]
        if not rr: cells.append(f'{s}: -'); continue
        g=100*np.mean([r['gain'] for r in rr]); se=100*np.mean([r['error'] for r in rr])
        rk=[100*(v-r['baseline']) for r in rr for n,v in r['systems'].items() if n.endswith('reranked')]
        cells.append(f"{s} ({rr[0]['questions']}, seeds {len(rr)}): {g:+.2f}±{1.96*se:.1f} rr {np.mean(rk) if rk else 0:+.2f}")
        means.append(g); ses.append(se)
    m=np.array(means); se=np.array(ses)
    no=[i for i,c in enumerate([c for c in cells if not c.endswith('-')]) if not c.startswith('medquad')]
    if len(m): print(split,arm,'\n   ','\n    '.join(cells),'\n  mean %.2f ± %.2f; without medquad %.2f ± %.2f'%(m.mean(),1.96*np.sqrt((se**2).sum())/len(m),m[no].mean(),1.96*np.sqrt((se[no]**2).sum())/len(no)))
